//! The OpenAPI document of the admin API, made from the table of routes.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::error::ApiError;
use super::routes::{Answer, ROUTES, Route};

/// The document, OpenAPI 3.1: its schemas are JSON Schema 2020-12, as the types derive them.
pub(super) fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
    });
    let mut generator = settings.into_generator();
    let error = generator.subschema_for::<ApiError>();
    let mut paths = Map::new();
    for route in &ROUTES {
        let method = route.verb.as_str().to_ascii_lowercase();
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[method] = operation(route, &mut generator, error.as_value());
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Status, live changes and metrics of one proxy.",
        },
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator, error: &Value) -> Value {
    let mut operation = json!({
        "summary": route.summary,
        "operationId": format!("{:?}", route.endpoint),
        "responses": {
            "200": answer(&route.answer, generator),
            "default": {
                "description": "Refused, with cause and remedy.",
                "content": { "application/json": { "schema": error } },
            },
        },
    });
    if route.path.contains("{name}") {
        operation["parameters"] = json!([{
            "name": "name",
            "in": "path",
            "required": true,
            "description": "The name of an application.",
            "schema": { "type": "string" },
        }]);
    }
    if route.guarded {
        // An empty requirement beside it: without a configured token none is needed.
        operation["security"] = json!([{ "token": [] }, {}]);
    }
    if let Some(describe) = route.body {
        operation["requestBody"] = json!({
            "required": true,
            "content": { "application/json": { "schema": describe(generator) } },
        });
    }
    operation
}

fn answer(answer: &Answer, generator: &mut SchemaGenerator) -> Value {
    match answer {
        Answer::Nothing => json!({ "description": "Yes." }),
        Answer::Text(kind) => json!({
            "description": "Done.",
            "content": { *kind: { "schema": { "type": "string" } } },
        }),
        Answer::Json(describe) => json!({
            "description": "Done.",
            "content": { "application/json": { "schema": describe(generator) } },
        }),
    }
}
