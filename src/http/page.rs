//! The page: the files in `assets/`, as they are. They tell nothing of this daemon, so no secret is needed for them; what they ask for needs it.

use actix_web::{HttpResponse, http::header};
use twox_hash::XxHash3_64;

use super::{
    api_request::{Answer, ApiRequest},
    error::ApiError,
};

/// A file of the page.
struct File {
    name: &'static str,
    body: &'static str,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(File { name: $name, body: include_str!(concat!("../../assets/", $name)) }),*]
    };
}

const INDEX: &str = "index.html";

const FILES: &[File] = files![
    "index.html",
    "api.js",
    "app.js",
    "audit.js",
    "chart.js",
    "consumers.js",
    "daemon.js",
    "dead.js",
    "dom.js",
    "ended.js",
    "feed.js",
    "find.js",
    "format.js",
    "icon.svg",
    "items.js",
    "limits.js",
    "listing.js",
    "other-queues.js",
    "overview.js",
    "payload.js",
    "progress.js",
    "queue-parts.js",
    "queue.js",
    "schedules.js",
    "style.css",
    "timeline.js",
    "ui.js",
    "workers.js",
];

/// `GET /`
pub(super) async fn index(request: ApiRequest) -> Answer {
    file(&request, INDEX)
}

/// `GET /assets/{file}`
pub(super) async fn asset(request: ApiRequest) -> Answer {
    file(&request, request.value("file"))
}

fn file(request: &ApiRequest, name: &str) -> Answer {
    let file = FILES.iter().find(|file| file.name == name);
    let file = file.ok_or_else(|| ApiError::NotFound(format!("the page has no file {name:?}")))?;
    let tag = file.tag();
    let known = request.http.headers().get_all(header::IF_NONE_MATCH);
    let known =
        known.filter_map(|value| value.to_str().ok()).any(|tags| tags.split(", ").any(|it| it == tag));
    let mut response = if known { HttpResponse::NotModified() } else { HttpResponse::Ok() };
    // Kept, and asked for at each visit: another version of the daemon has other files.
    response.insert_header((header::CACHE_CONTROL, "no-cache")).insert_header((header::ETAG, tag));
    if known {
        return Ok(response.finish());
    }
    Ok(response.content_type(file.content_type()).body(file.body))
}

impl File {
    fn content_type(&self) -> &'static str {
        match self.name.rsplit('.').next() {
            Some("html") => "text/html; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            _ => "image/svg+xml",
        }
    }

    fn tag(&self) -> String {
        format!("\"{:016x}\"", XxHash3_64::oneshot(self.body.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::*;

    #[test]
    fn all_files_are_in_the_binary() {
        let stored = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/assets")).unwrap();
        let stored: BTreeSet<_> = stored.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(FILES.iter().map(|it| it.name.to_owned()).collect::<BTreeSet<_>>(), stored);
    }

    #[test]
    fn the_page_weighs_less_than_150_kb() {
        let bytes: usize = FILES.iter().map(|file| file.body.len()).sum();
        assert!(bytes < 150_000, "{bytes}");
    }

    #[test]
    fn the_page_loads_nothing_from_other_hosts() {
        for File { name, body } in FILES {
            // The one address is the name of SVG's vocabulary.
            let body = body.replace("http://www.w3.org/2000/svg", "");
            for foreign in ["http:", "https:", "//cdn", "@import", "url("] {
                assert!(!body.contains(foreign), "{name} has {foreign}");
            }
        }
    }

    #[test]
    fn the_page_never_parses_data_as_html() {
        let ways = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "srcdoc",
        ];
        for File { name, body } in FILES {
            for way in ways {
                assert!(!body.contains(way), "{name} has {way}");
            }
            assert!(!body.contains(" style=") && !body.contains("javascript:"), "{name}");
        }
    }

    #[test]
    fn page_modules_import_existing_files() {
        for File { name, body } in FILES.iter().filter(|file| file.name.ends_with(".js")) {
            for line in body.lines().filter(|line| line.starts_with("import ")) {
                let (_, from) = line.split_once("from \"./").unwrap_or_else(|| panic!("{name}: {line}"));
                let wanted = from.trim_end_matches("\";");
                assert!(FILES.iter().any(|file| file.name == wanted), "{name} imports {wanted}");
            }
        }
    }
}
