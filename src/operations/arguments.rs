//! The arguments of an operation in a request: one flat object, wherever each of them is.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Number, Value};

use super::{Operation, Place, Refusal, in_path};

/// An operation as data: its name, and the JSON schemas of its arguments and its answer.
pub(crate) struct Definition {
    #[cfg(test)]
    pub(crate) name: fn() -> &'static str,
    arguments: fn() -> Value,
    #[cfg(test)]
    pub(crate) answer: fn() -> Value,
    place_of: fn(&str) -> Place,
}

impl Definition {
    pub(crate) const fn of<O: Operation>() -> Self {
        Self {
            #[cfg(test)]
            name: std::any::type_name::<O>,
            arguments: schema::<O>,
            #[cfg(test)]
            answer: schema::<O::Answer>,
            place_of: |name| O::ROUTE.place_of(name),
        }
    }

    /// The schema of the arguments that are in this place.
    pub(crate) fn arguments(&self, place: Place) -> Value {
        let mut schema = (self.arguments)();
        let is_here = |name: &str| (self.place_of)(name) == place;
        if let Some(properties) = schema["properties"].as_object_mut() {
            properties.retain(|name, _| is_here(name));
        }
        if let Some(required) = schema["required"].as_array_mut() {
            required.retain(|name| name.as_str().is_some_and(is_here));
        }
        schema
    }

    /// The arguments that the query of its route may have.
    pub(crate) fn in_query(&self) -> Vec<String> {
        let schema = self.arguments(Place::Query);
        schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
    }
}

/// The JSON schema of a type, without references.
fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("$schema");
        schema.remove("title");
        // So it is for bodies and queries, which are checked by hand: serde cannot, where one struct is a part of another.
        schema.insert("additionalProperties".to_owned(), false.into());
    }
    schema
}

/// Reads an operation from what the path has, and what the query or the body has.
///
/// # Errors
/// The argument that is unknown or wrong.
pub(crate) fn read<O: Operation>(
    in_path: impl IntoIterator<Item = (&'static str, String)>,
    others: impl IntoIterator<Item = (String, Given)>,
) -> Result<O, Refusal> {
    let known = schema::<O>()["properties"].as_object().cloned().unwrap_or_default();
    let mut arguments = Map::new();
    for (name, given) in others {
        let place = given.place();
        let Some(schema) = known.get(&name).filter(|_| O::ROUTE.place_of(&name) == place) else {
            let wanted = known.keys().map(String::as_str).filter(|name| O::ROUTE.place_of(name) == place);
            return Err(Refusal::bad(format!(
                "unknown {name:?}; it may have {}",
                wanted.collect::<Vec<_>>().join(", ")
            )));
        };
        let value = given.value(&name, schema).map_err(Refusal::bad)?;
        check_range(&name, &value, schema).map_err(Refusal::bad)?;
        arguments.insert(name, value);
    }
    arguments.extend(in_path.into_iter().map(|(name, value)| (name.to_owned(), value.into())));
    serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|error| {
        let path = error.path().to_string();
        let problem = error.into_inner();
        Refusal::bad(if path == "." { problem.to_string() } else { format!("{path}: {problem}") })
    })
}

/// An argument as it came.
pub(crate) enum Given {
    /// A text of the query.
    Text(String),
    /// A value of the body.
    Json(Value),
}

impl Given {
    fn place(&self) -> Place {
        match self {
            Self::Text(_) => Place::Query,
            Self::Json(_) => Place::Body,
        }
    }

    fn value(self, name: &str, schema: &Value) -> Result<Value, String> {
        let is = |kind: &str| is_of(schema, kind);
        match self {
            Self::Text(text) if is("boolean") => match text.as_str() {
                "true" => Ok(true.into()),
                "false" => Ok(false.into()),
                _ => Err(format!("parameter {name} is {text:?}, neither true nor false")),
            },
            Self::Text(text) if is("integer") => {
                let number = text.parse::<u64>().ok().filter(|_| !text.starts_with('+'));
                number
                    .map(Value::from)
                    .ok_or_else(|| format!("parameter {name} is {text:?}, not a whole number"))
            }
            Self::Text(text) => Ok(text.into()),
            // In JSON 1.0 is a whole number, too.
            Self::Json(Value::Number(number)) if is("integer") => Ok(whole(number).into()),
            // serde names no field of a struct that is a part of another.
            Self::Json(value) => match schema["type"].is_null() || is(kind_of(&value)) {
                true => Ok(value),
                false => Err(format!("{name} is {}, not {}", kind_of(&value), schema["type"])),
            },
        }
    }
}

/// The type of a value, as schemas call it.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Whether a schema allows values of this type.
fn is_of(schema: &Value, kind: &str) -> bool {
    match &schema["type"] {
        Value::String(only) => only == kind,
        Value::Array(kinds) => kinds.iter().any(|it| it == kind),
        _ => false,
    }
}

/// The same number, as an integer if it is one.
fn whole(number: Number) -> Number {
    let float =
        number.as_f64().filter(|_| number.is_f64()).filter(|float| float.fract() == 0.0 && *float >= 0.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number that is too large becomes the largest"
    )]
    float.map_or(number, |float| Number::from(float as u64))
}

fn check_range(name: &str, value: &Value, schema: &Value) -> Result<(), String> {
    let Some(number) = value.as_u64().filter(|_| is_of(schema, "integer")) else { return Ok(()) };
    let bound = |key: &str| schema[key].as_u64();
    let (least, most) = (bound("minimum").unwrap_or(0), bound("maximum").unwrap_or(u64::MAX));
    if (least..=most).contains(&number) {
        return Ok(());
    }
    Err(match most {
        u64::MAX => format!("{name} is {number}, and has to be {least} or more"),
        most => format!("{name} is {number}, not a whole number from {least} to {most}"),
    })
}

/// A request for an operation, as a client sends it.
pub(crate) struct Request {
    /// The path, with its query.
    pub(crate) path: String,
    pub(crate) body: Option<Value>,
}

impl Request {
    /// # Errors
    /// The argument in the path that no URL can have, since it is not UTF-8.
    pub(crate) fn of<O: Operation>(operation: &O, encoded: impl Fn(&str) -> String) -> Result<Self, Refusal> {
        let Ok(Value::Object(arguments)) = serde_json::to_value(operation) else {
            return Err(Refusal::bad("these arguments are no JSON"));
        };
        let (mut path, mut query, mut body) = (O::ROUTE.path.to_owned(), Vec::new(), Map::new());
        for (name, value) in arguments.into_iter().filter(|(_, value)| !value.is_null()) {
            let text = || value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            match O::ROUTE.place_of(&name) {
                Place::Path => path = path.replace(&format!("{{{name}}}"), &encoded(&text())),
                Place::Query => query.push(format!("{name}={}", encoded(&text()))),
                Place::Body => drop(body.insert(name, value)),
            }
        }
        if let Some(name) = in_path(&path).next() {
            return Err(Refusal::bad(format!("a {name} that is not UTF-8 cannot be named over HTTP")));
        }
        if !query.is_empty() {
            path = format!("{path}?{}", query.join("&"));
        }
        Ok(Self { path, body: (!O::ROUTE.has_query()).then_some(Value::Object(body)) })
    }
}
