//! Finds a unit and its drop-ins as systemd does, and reads the settings of its service.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

/// Where units are, the first one winning.
pub(super) const DIRECTORIES: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

const SECTION: &str = "[Service]";

/// The settings of a service, drop-ins included.
#[derive(Debug, Default)]
pub(super) struct Service {
    settings: Vec<(String, String)>,
}

impl Service {
    /// The unit of that name, from the first of the directories that has it; the template if the instance has none.
    pub(super) fn find(name: &str, directories: &[&Path]) -> Option<Self> {
        let names = names(name);
        let files = names.iter().flat_map(|name| directories.iter().map(move |it| it.join(name)));
        let text = files.into_iter().find_map(|file| fs::read_to_string(file).ok())?;
        let mut service = Self::default();
        service.read(&text);
        for drop_in in drop_ins(&names, directories).values() {
            service.read(&fs::read_to_string(drop_in).unwrap_or_default());
        }
        service.fill_in(name);
        Some(service)
    }

    /// What a setting was last set to.
    pub(super) fn get(&self, setting: &str) -> Option<&str> {
        let mut values = self.settings.iter().rev().filter(|(name, _)| name == setting);
        values.next().map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Adds the settings of a file.
    pub(super) fn read(&mut self, text: &str) {
        let joined = text.replace("\\\n", " ");
        let lines = joined.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';']));
        let mut here = false;
        for line in lines {
            if line.starts_with('[') {
                here = line == SECTION;
            } else if let Some((name, value)) = line.split_once('=').filter(|_| here) {
                self.settings.push((name.trim().to_owned(), value.trim().to_owned()));
            }
        }
    }

    /// Puts the instance's name in.
    fn fill_in(&mut self, name: &str) {
        let Some((_, instance)) = name.trim_end_matches(".service").split_once('@') else { return };
        for (_, value) in &mut self.settings {
            *value = value.replace("%i", instance).replace("%I", instance);
        }
    }
}

/// The names of the files that can describe a unit.
fn names(name: &str) -> Vec<String> {
    let template = name.split_once('@').map(|(template, _)| format!("{template}@.service"));
    std::iter::once(name.to_owned()).chain(template.filter(|template| template != name)).collect()
}

/// By their names, which order them; one hides those of its name in later directories.
fn drop_ins(names: &[String], directories: &[&Path]) -> BTreeMap<OsString, PathBuf> {
    let mut found = BTreeMap::new();
    for directory in
        directories.iter().flat_map(|it| names.iter().map(move |name| it.join(format!("{name}.d"))))
    {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|it| it == "conf") {
                found.entry(entry.file_name()).or_insert(entry.path());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_counts_and_only_of_the_service() {
        let mut service = Service::default();
        service.read("[Unit]\nType=no\n[Service]\n# Type=no\nType = notify-reload\nExecStart=a \\\n  b\n");
        service.read("[Service]\nType=notify\nExecReload=\n[Install]\nType=no\n");
        assert_eq!(service.get("Type"), Some("notify"));
        assert_eq!(service.get("ExecStart"), Some("a    b"));
        assert_eq!(service.get("ExecReload"), None);
        assert_eq!(service.get("WatchdogSec"), None);
    }

    #[test]
    fn an_instance_is_described_by_its_template_and_the_drop_ins_of_both() {
        let (etc, lib) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let write = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            lib.path().join("kvqueue@.service"),
            "[Service]\nExecStart=x --config /etc/%i.toml\nUser=a\nType=b",
        );
        write(lib.path().join("kvqueue@.service.d/1.conf"), "[Service]\nUser=hidden\nType=hidden");
        write(etc.path().join("kvqueue@.service.d/1.conf"), "[Service]\nUser=first");
        write(etc.path().join("kvqueue@mail.service.d/2.conf"), "[Service]\nUser=second");
        write(etc.path().join("kvqueue@mail.service.d/3.txt"), "[Service]\nUser=none");
        let directories = [etc.path(), lib.path()];
        let service = Service::find("kvqueue@mail.service", &directories).unwrap();
        assert_eq!(service.get("ExecStart"), Some("x --config /etc/mail.toml"));
        assert_eq!((service.get("User"), service.get("Type")), (Some("second"), Some("b")));
        assert!(Service::find("kvqueue.service", &directories).is_none());
    }
}
