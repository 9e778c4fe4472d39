//! `GET /api/v1/openapi.json`: what there is, for programs. Written by hand; the tests hold it to the routes and to the answers.

use actix_web::{HttpResponse, http::header::ContentType};

use super::api_request::{Answer, ApiRequest};

const DOCUMENT: &str = include_str!("../../docs/openapi.json");

pub(super) async fn document(_: ApiRequest) -> Answer {
    Ok(HttpResponse::Ok().content_type(ContentType::json()).body(DOCUMENT))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::Value;

    use super::*;
    use crate::http::routes::{Access, ROUTES};

    /// Pages and their parts are for browsers, not for programs.
    fn is_described(path: &str) -> bool {
        path.starts_with("/api/") || ["/livez", "/readyz", "/metrics"].contains(&path)
    }

    /// The name of a parameter, which may be described elsewhere in the document.
    fn name(parameter: &Value) -> &str {
        let elsewhere = parameter["$ref"].as_str().and_then(|at| at.rsplit('/').next());
        elsewhere.unwrap_or_else(|| parameter["name"].as_str().unwrap())
    }

    #[test]
    fn openapi_document_has_exactly_the_routes() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let mut described = BTreeMap::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                if method == "parameters" {
                    continue;
                }
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                let query: BTreeSet<_> = parameters.map(name).collect();
                let is_open = operation["security"] == serde_json::json!([]);
                let scope = operation["x-kvqueue-scope"].as_str().map(str::to_owned);
                assert_eq!(is_open, scope.is_none(), "{method} {path}");
                let audit = operation["x-kvqueue-audit"].as_str().map(str::to_owned);
                described.insert((path.as_str(), method.to_uppercase()), (query, scope, audit));
            }
        }
        let routes: BTreeMap<_, _> = ROUTES
            .iter()
            .filter(|route| is_described(route.path))
            .map(|route| {
                let query = route.query.iter().copied().collect::<BTreeSet<_>>();
                let scope = match route.access {
                    Access::Open | Access::AnyToken => None,
                    Access::Scope(scope) => Some(scope.to_string()),
                };
                ((route.path, route.method.to_string()), (query, scope, route.audit.map(|it| it.to_string())))
            })
            .collect();
        assert_eq!(described, routes);
    }

    #[test]
    fn the_manual_has_every_route() {
        let manual = include_str!("../../docs/API.md");
        for route in ROUTES.iter().filter(|route| is_described(route.path)) {
            let row = format!("| `{} {}` |", route.method, route.path);
            assert!(manual.contains(&row), "docs/API.md lacks {row}");
        }
    }
}
