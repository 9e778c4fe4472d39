//! What this crate's own source files declare, read from their text: the compiler offers no list.

use std::collections::BTreeMap;
use std::path::Path;

use crate::{Declared, parameter_count};

/// Reads every source file below `directory`.
pub(crate) fn read(directory: &Path) -> Declared {
    let mut declared = Declared { functions: BTreeMap::new(), constants: BTreeMap::new() };
    for entry in std::fs::read_dir(directory).expect("the source directory can be listed") {
        let path = entry.expect("the source directory can be listed").path();
        if path.is_dir() {
            let inner = read(&path);
            declared.functions.extend(inner.functions);
            declared.constants.extend(inner.constants);
        } else {
            let text = std::fs::read_to_string(&path).expect("a source file is readable text");
            functions(&text, &mut declared.functions);
            constants(&text, &mut declared.constants);
        }
    }
    declared
}

fn functions(text: &str, found: &mut BTreeMap<String, usize>) {
    for declaration in text.split("pub fn ").skip(1) {
        if let Some(open) = declaration.find('(') {
            found.insert(declaration[..open].to_owned(), parameter_count(&declaration[open..]));
        }
    }
}

/// Constants of an enumeration are those whose name begins with the name of their type.
fn constants(text: &str, found: &mut BTreeMap<String, i64>) {
    for declaration in text.split("pub const ").skip(1) {
        let mut parts = declaration.split([':', '=', ';']).map(str::trim);
        if let (Some(name), Some(kind), Some(value)) = (parts.next(), parts.next(), parts.next())
            && name.starts_with(kind)
        {
            let value = value.parse().unwrap_or_else(|_| panic!("{name} has the value {value:?}"));
            found.insert(name.to_owned(), value);
        }
    }
}
