//! Documents about requests that tests write from the routes and the operations: the table of `docs/API.md`, and that of `docs/security/audit.md`.

use std::{collections::BTreeMap, fs};

use actix_web::http::Method;
use serde_json::Value;

use super::{
    route::{Access, Route},
    routes::ROUTES,
};
use crate::{
    audit::Action,
    docs::generated::{rows_of, table_in},
    operations::{self, Operation, Part, Visit, arguments::Definition},
};

/// Pages and their parts are for browsers, not for programs.
pub(super) fn is_described(path: &str) -> bool {
    path.starts_with("/api/") || ["/livez", "/readyz", "/metrics"].contains(&path)
}

/// The texts of the operations in `docs/API.md`, by method and path.
#[derive(Default)]
struct Texts(BTreeMap<(&'static str, &'static str), String>);

impl Visit for Texts {
    fn operation<O: Operation + 'static>(&mut self) {
        let definition = Definition::of::<O>();
        let mut sentences = vec![said(&definition.arguments(Part::Body))];
        for (part, title) in [(Part::Query, "Query"), (Part::Body, "Body")] {
            let arguments = definition.arguments(part);
            let arguments = arguments["properties"].as_object().into_iter().flatten();
            // The page explains these once.
            let arguments = arguments.filter(|(name, _)| {
                !["kind", "values", "end"].contains(&name.as_str()) && !name.ends_with("_base64")
            });
            let named: Vec<_> = arguments.map(|(name, schema)| argument(name, schema)).collect();
            if !named.is_empty() {
                sentences.push(format!("{title}: {}", named.join(", ")));
            }
        }
        sentences.push(O::ROUTE.notes.to_owned());
        let sentences = sentences.into_iter().filter(|sentence| !sentence.is_empty());
        let text = sentences.collect::<Vec<_>>().join(". ");
        self.0.insert((O::ROUTE.method.as_str(), O::ROUTE.path), text);
    }
}

/// An argument, with what it may be.
fn argument(name: &str, schema: &Value) -> String {
    let texts: Vec<_> = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    match (&texts[..], schema["minimum"].as_u64(), schema["maximum"].as_u64()) {
        ([_, ..], ..) => format!("`{name}` ({})", texts.join(", ")),
        ([], least, Some(most)) => format!("`{name}` ({} to {most})", least.unwrap_or(0)),
        _ => format!("`{name}`"),
    }
}

/// The description of a schema, in one line.
fn said(schema: &Value) -> String {
    let description = schema["description"].as_str().unwrap_or_default();
    description.trim_end_matches('.').replace('\n', " ")
}

/// An operation that the list lacks has no route.
#[test]
fn the_list_has_every_operation() {
    let mut texts = Texts::default();
    operations::each(&mut texts);
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/operations");
    let files =
        fs::read_dir(directory).unwrap().map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
    let defined: usize = files.map(|text| text.matches("\nimpl Operation for ").count()).sum();
    assert_eq!(texts.0.len(), defined, "a line in `each` of a file is missing");
}

#[test]
fn the_page_of_requests_is_as_they_are_defined() {
    const PAGE: &str = "docs/API.md";
    const HEADER: &str = "| request | scope | record | |";
    let mut texts = Texts::default();
    operations::each(&mut texts);
    let order = |route: &Route| {
        let methods = [Method::GET, Method::POST, Method::PUT, Method::DELETE];
        (route.path, methods.iter().position(|method| *method == route.method))
    };
    let mut routes: Vec<_> = ROUTES.iter().filter(|route| is_described(route.path)).collect();
    routes.sort_by_key(|route| order(route));
    let known = rows_of(PAGE, HEADER);
    let row = |route: &&Route| {
        let request = format!("| `{} {}` | ", route.method, route.path);
        let scope = match route.access {
            Access::Open | Access::AnyToken => "none".to_owned(),
            Access::Scope(scope) => scope.to_string(),
        };
        let record = route.audit.map(|action| format!("`{action}`")).unwrap_or_default();
        let text = texts.0.get(&(route.method.as_str(), route.path)).cloned().unwrap_or_else(|| {
            let row = known.iter().find(|row| row.starts_with(&request));
            let row = row.unwrap_or_else(|| panic!("{PAGE} lacks {request}"));
            row.splitn(4, " | ").nth(3).unwrap().trim_end_matches(" |").to_owned()
        });
        format!("{request}{scope} | {record} | {text} |")
    };
    table_in(PAGE, HEADER, &routes.iter().map(row).collect::<Vec<_>>());
}

#[test]
fn the_table_of_actions_is_as_they_are_defined() {
    let mut actions: Vec<_> = ROUTES.iter().filter_map(|route| route.audit).collect();
    actions.extend(Action::OF_COMMANDS);
    actions.sort_by_key(|action| action.as_str());
    actions.dedup();
    let codes: Vec<_> = actions.iter().map(|action| action.as_str()).collect();
    assert!(codes.windows(2).all(|pair| pair[0] < pair[1]), "an action has two meanings: {codes:?}");
    let row = |action: &Action| format!("| `{action}` | {} | {} |", action.change, action.details);
    let rows: Vec<_> = actions.iter().map(row).collect();
    table_in("docs/security/audit.md", "| action | the change | details |", &rows);
}
