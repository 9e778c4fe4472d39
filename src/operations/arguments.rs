//! The arguments of an operation in a request: one flat object, wherever each of them is.

use std::{
    any::type_name,
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Number, Value};

use super::{Operation, Part, Refusal, in_path};

/// An operation as data: its name, and the JSON schemas of its arguments and its answer.
pub(crate) struct Definition {
    #[cfg(test)]
    pub(crate) name: fn() -> &'static str,
    arguments: fn() -> Arc<Value>,
    #[cfg(test)]
    pub(crate) answer: fn() -> Arc<Value>,
    part_of: fn(&str) -> Part,
}

impl Definition {
    pub(crate) const fn of<O: Operation>() -> Self {
        Self {
            #[cfg(test)]
            name: type_name::<O>,
            arguments: schema::<O>,
            #[cfg(test)]
            answer: schema::<O::Answer>,
            part_of: |name| O::ROUTE.part_of(name),
        }
    }

    /// The schema of the arguments that are in this place.
    pub(crate) fn arguments(&self, part: Part) -> Value {
        let mut schema = Value::clone(&(self.arguments)());
        let is_here = |name: &str| (self.part_of)(name) == part;
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            properties.retain(|name, _| is_here(name));
        }
        if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|name| name.as_str().is_some_and(is_here));
        }
        schema
    }

    /// The arguments that the query of its route may have.
    pub(crate) fn in_query(&self) -> Vec<String> {
        let schema = self.arguments(Part::Query);
        schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
    }
}

/// The JSON schema of a type, without references. It is made once.
fn schema<T: JsonSchema>() -> Arc<Value> {
    static MADE: Mutex<BTreeMap<&str, Arc<Value>>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.entry(type_name::<T>()).or_insert_with(|| Arc::new(new_schema::<T>())).clone()
}

fn new_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    simplify(&mut schema);
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("$schema");
        schema.remove("title");
        // `read` refuses unknown arguments; serde cannot do that for flattened structs.
        if schema.contains_key("properties") {
            schema.insert("additionalProperties".to_owned(), false.into());
        }
    }
    schema
}

/// Writes a choice of texts as a list of them, and one that may be null as a type. The descriptions of the texts are for Rust.
fn simplify(schema: &mut Value) {
    let object = match schema {
        Value::Object(object) => object,
        Value::Array(schemas) => return schemas.iter_mut().for_each(simplify),
        _ => return,
    };
    object.values_mut().for_each(simplify);
    if let Some(Value::Array(choices)) = object.get("oneOf")
        && let Some(texts) = choices.iter().map(|it| it.get("const").cloned()).collect::<Option<Vec<_>>>()
    {
        object.remove("oneOf");
        object.insert("type".to_owned(), "string".into());
        object.insert("enum".to_owned(), texts.into());
    }
    if let Some(Value::Array(kinds)) = object.get("anyOf")
        && let [Value::Object(kind), null] = &kinds[..]
        && null["type"] == "null"
    {
        let mut kind = kind.clone();
        if let Some(Value::Array(texts)) = kind.get_mut("enum") {
            texts.push(Value::Null);
        }
        if let Some(Value::String(name)) = kind.get("type") {
            let kinds = vec![Value::from(name.as_str()), "null".into()];
            kind.insert("type".to_owned(), kinds.into());
        }
        object.remove("anyOf");
        for (name, value) in kind {
            object.entry(name).or_insert(value);
        }
    }
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
        let part = given.part();
        let Some(schema) = known.get(&name).filter(|_| O::ROUTE.part_of(&name) == part) else {
            let wanted = known.keys().map(String::as_str).filter(|name| O::ROUTE.part_of(name) == part);
            let wanted = wanted.collect::<Vec<_>>().join(", ");
            let wanted = if wanted.is_empty() { "none" } else { &wanted };
            return Err(Refusal::bad(format!("unknown {} {name:?}; known: {wanted}", part.word())));
        };
        let value = given.value(&name, schema).map_err(Refusal::bad)?;
        // What is null is left out.
        if !value.is_null() {
            check_range(&name, &value, schema).map_err(Refusal::bad)?;
            arguments.insert(name, value);
        }
    }
    arguments.extend(in_path.into_iter().map(|(name, value)| (name.to_owned(), value.into())));
    serde_json::from_value(Value::Object(arguments.clone())).map_err(|error| {
        // serde names no field of a flattened struct. Without the one that is wrong, the error is another, or none.
        let is_culprit = |name: &&String| {
            let rest = arguments.iter().filter(|(other, _)| other != name);
            let rest = rest.map(|(name, value)| (name.clone(), value.clone())).collect();
            let without = serde_json::from_value::<O>(Value::Object(rest));
            without.map_or_else(|other| other.to_string() != error.to_string(), |_| true)
        };
        let name = arguments.keys().filter(|name| O::ROUTE.part_of(name) != Part::Path).find(is_culprit);
        let begins = |name: &&String| !error.to_string().starts_with(name.as_str());
        let prefix = name.filter(begins).map(|name| format!("{name}: ")).unwrap_or_default();
        Refusal::bad(format!("{prefix}{error}"))
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
    fn part(&self) -> Part {
        match self {
            Self::Text(_) => Part::Query,
            Self::Json(_) => Part::Body,
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
            Self::Json(value) => match schema["type"].is_null() || is(kind_of(&value)) {
                true => Ok(value),
                false => Err(format!("{name} has to be {}", expected(schema))),
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

/// The values that a schema allows, in words.
fn expected(schema: &Value) -> String {
    let words = [
        ("integer", "a whole number"),
        ("string", "a text"),
        ("boolean", "true or false"),
        ("array", "a list"),
        ("object", "an object"),
    ];
    let allowed = words.iter().filter(|(kind, _)| is_of(schema, kind)).map(|(_, words)| *words);
    allowed.collect::<Vec<_>>().join(", or ")
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
    let whole = |value: &Value| value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
    let Some(number) = whole(value).filter(|_| is_of(schema, "integer")) else { return Ok(()) };
    let widest = if schema["format"] == "uint32" { i128::from(u32::MAX) } else { i128::from(u64::MAX) };
    let least = whole(&schema["minimum"]).unwrap_or(0);
    let most = whole(&schema["maximum"]).unwrap_or(widest);
    if (least..=most).contains(&number) {
        return Ok(());
    }
    Err(match number < least && schema["maximum"].is_null() {
        true => format!("{name} is {number}, and has to be {least} or more"),
        false => format!("{name} is {number}, not a whole number from {least} to {most}"),
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
            return Err(Refusal::bad("the arguments cannot be written as a JSON object"));
        };
        let (mut path, mut query, mut body) = (O::ROUTE.path.to_owned(), Vec::new(), Map::new());
        for (name, value) in arguments.into_iter().filter(|(_, value)| !value.is_null()) {
            let text = || value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            match O::ROUTE.part_of(&name) {
                Part::Path => path = path.replace(&format!("{{{name}}}"), &encoded(&text())),
                Part::Query => query.push(format!("{name}={}", encoded(&text()))),
                Part::Body => drop(body.insert(name, value)),
            }
        }
        if let Some(name) = in_path(&path).next() {
            return Err(Refusal::bad(format!("over HTTP {name} has to be UTF-8")));
        }
        if !query.is_empty() {
            path = format!("{path}?{}", query.join("&"));
        }
        Ok(Self { path, body: (!O::ROUTE.has_query()).then_some(Value::Object(body)) })
    }
}
