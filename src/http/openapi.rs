//! `GET /api/v1/openapi.json`: what there is, for programs. Operations are made from their definitions; the rest is written by hand. Tests hold it to the
//! routes and to the answers.

use actix_web::{HttpResponse, http::header::ContentType};

use super::api_request::{Answer, ApiRequest};

const DOCUMENT: &str = include_str!("../../docs/openapi.json");

pub(super) async fn document(_: ApiRequest) -> Answer {
    Ok(HttpResponse::Ok().content_type(ContentType::json()).body(DOCUMENT))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde::Serialize;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        docs::generated::whole_file,
        http::{
            documents::is_described,
            route::{Access, Parameters, Route},
            routes::ROUTES,
        },
        operations::{Part, arguments::Definition},
    };

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
                let query: BTreeSet<_> = parameters.map(|parameter| name(parameter).to_owned()).collect();
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
                let query = route.query.names().into_iter().collect::<BTreeSet<_>>();
                let scope = match route.access {
                    Access::Open | Access::AnyToken => None,
                    Access::Scope(scope) => Some(scope.to_string()),
                };
                ((route.path, route.method.to_string()), (query, scope, route.audit.map(|it| it.to_string())))
            })
            .collect();
        assert_eq!(described, routes);
    }

    /// The entry of an operation.
    fn entry(route: &Route, definition: &Definition, known: &Value) -> Value {
        let name = (definition.name)().rsplit("::").next().unwrap();
        let body = definition.arguments(Part::Body);
        let query = definition.arguments(Part::Query);
        let required = query["required"].as_array().cloned().unwrap_or_default();
        let parameters = query["properties"].as_object().into_iter().flatten().map(|(name, schema)| {
            if known[name]["in"] == "query" {
                return json!({ "$ref": format!("#/components/parameters/{name}") });
            }
            json!({ "name": name, "in": "query", "required": required.contains(&json!(name)), "schema": schema })
        });
        let parameters: Vec<_> = parameters.collect();
        let content = |schema: &Value| json!({ "application/json": { "schema": schema } });
        let mut answer = Value::clone(&(definition.answer)());
        let description = answer.as_object_mut().and_then(|answer| answer.remove("description"));
        let mut entry = json!({
            "operationId": name[..1].to_lowercase() + &name[1..],
            "summary": body["description"],
            "responses": {
                "200": { "description": description, "content": content(&answer) },
                "default": { "$ref": "#/components/responses/Error" },
            },
        });
        if let Access::Scope(scope) = route.access {
            entry["x-kvqueue-scope"] = scope.to_string().into();
        }
        if !parameters.is_empty() {
            entry["parameters"] = parameters.into();
        }
        if body["properties"].as_object().is_some_and(|properties| !properties.is_empty()) {
            let is_required = body["required"].as_array().is_some_and(|names| !names.is_empty());
            entry["requestBody"] = json!({ "required": is_required, "content": content(&body) });
        }
        if let Some(action) = route.audit {
            entry["x-kvqueue-audit"] = action.to_string().into();
        }
        entry
    }

    #[test]
    fn openapi_document_has_the_operations_as_they_are_defined() {
        let mut document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let known = document["components"]["parameters"].clone();
        for route in ROUTES.iter() {
            if let Parameters::Operation(definition) = &route.query {
                let path = &mut document["paths"][route.path];
                path[route.method.as_str().to_lowercase()] = entry(route, definition, &known);
            }
        }
        let mut made = Vec::new();
        let formatter = serde_json::ser::PrettyFormatter::with_indent(b" ");
        document.serialize(&mut serde_json::Serializer::with_formatter(&mut made, formatter)).unwrap();
        let made = String::from_utf8(made).unwrap() + "\n";
        whole_file("docs/openapi.json", &made);
    }
}
