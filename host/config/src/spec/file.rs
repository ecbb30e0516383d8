//! The schema of the whole file.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::runtime::{RuntimeSpec, ServingSpec};
use super::steps::StepSchemas;
use super::{for_each, model, ports, preprocessing, wasm};

/// A built-in step, for completion in editors.
#[derive(Clone, Debug)]
pub struct StepSchema<'s> {
    /// its tag
    pub name: &'s str,
    /// what it does, in a sentence
    pub summary: &'s str,
    /// what its options are
    pub schema: &'s Schema,
}

/// The schema of gpux.yml for editors, with these built-in steps (`model`, `wasm` and `for-each` are known).
pub fn json_schema(steps: &[StepSchema<'_>]) -> Schema {
    let (mut file, mut definitions) = parts();
    let names: Vec<_> = ["model", "wasm"].into_iter().chain(steps.iter().map(|step| step.name)).collect();
    let mut forms = vec![
        json!({ "description": "A step without options", "enum": names }),
        tagged(
            "model",
            "Runs a model",
            json!({ "type": ["object", "string", "null"], "properties": wired(&json!({ "name": { "type": "string" } })) }),
        ),
        tagged("wasm", "Runs a component", json!({ "anyOf": [{ "type": "string" }, { "$ref": "#/$defs/Wasm" }] })),
    ];
    for name in ["Wasm", "ForEach"] {
        if let Some(step) = definitions.get_mut(name) {
            step["properties"] = wired(&step["properties"]);
        }
    }
    for step in steps {
        let definition = format!("step-{}", step.name);
        let mut schema = step.schema.as_value().clone();
        rebase(&mut schema, &format!("#/$defs/{definition}"));
        if let Some(properties) = schema.get("properties") {
            schema["properties"] = wired(properties);
        }
        let reference = json!({ "anyOf": [{ "$ref": format!("#/$defs/{definition}") }, { "type": "null" }] });
        definitions.insert(definition, schema);
        forms.push(tagged(step.name, step.summary, reference));
    }
    // A level of `for-each` after the other, since many tools read no schema that refers to itself.
    definitions.insert("Step".to_owned(), json!({ "oneOf": forms }));
    let mut within = json!({ "$ref": "#/$defs/Step" });
    if let Some(for_each) = definitions.remove("ForEach") {
        for level in 1..=for_each::MAX_DEPTH {
            let mut for_each = for_each.clone();
            for_each["properties"]["steps"]["items"] = within;
            let name = format!("ForEach{level}");
            let reference = json!({ "$ref": format!("#/$defs/{name}") });
            definitions.insert(name, for_each);
            let step = tagged("for-each", "Runs steps for each item of a list", reference);
            within = json!({ "oneOf": [{ "$ref": "#/$defs/Step" }, step.clone()] });
            if level == for_each::MAX_DEPTH {
                forms.push(step);
            }
        }
    }
    file["properties"]["pipeline"]["items"] = json!({ "oneOf": forms });
    file["$defs"] = Value::Object(definitions);
    file["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    file["title"] = json!("gpux.yml");
    Schema::try_from(file).unwrap_or_default()
}

/// The schema that the file is checked against. Steps are checked apart, one by one.
pub(super) fn checked() -> Schema {
    let (mut file, definitions) = parts();
    file["$defs"] = Value::Object(definitions);
    Schema::try_from(file).unwrap_or_default()
}

/// The schemas of the fields of steps that are no built-in ones.
pub(super) fn steps() -> StepSchemas {
    let generator = || SchemaSettings::draft2020_12().into_generator();
    StepSchemas {
        wasm: generator().into_root_schema_for::<wasm::RawWasm>(),
        for_each: generator().into_root_schema_for::<for_each::RawForEach>(),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "every caller makes the value for this call")]
fn tagged(name: &str, summary: &str, options: Value) -> Value {
    json!({
        "description": summary, "type": "object", "properties": { name: options },
        "required": [name], "additionalProperties": false,
    })
}

/// These properties and `in`, `out` and `when`.
fn wired(properties: &Value) -> Value {
    let wiring = |what: &str| {
        json!({
            "description": what,
            "type": ["string", "array", "object"],
            "items": { "type": "string" },
            "additionalProperties": { "type": "string" },
        })
    };
    let mut properties = properties.clone();
    properties["in"] = wiring("The values this step reads, instead of what the step before gave");
    properties["out"] = wiring("The names of the values this step gives");
    properties["when"] = json!({
        "description": "The condition under which this step runs, such as `flag` (not false, 0, null or empty) or `score >= 0.5`; otherwise the step gives its first input",
        "type": "string",
    });
    properties
}

/// Makes the local references of `schema` hold when it stands at `place`.
fn rebase(schema: &mut Value, place: &str) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(target) if key == "$ref" && target.starts_with('#') => {
                        *target = format!("{place}{}", &target[1..]);
                    }
                    value => rebase(value, place),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rebase(item, place)),
        _ => {}
    }
}

fn parts() -> (Value, Map<String, Value>) {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let file = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["name", "version"],
        "properties": {
            "name": text("The name of the pipeline", MAX_NAME),
            "version": text("The version of the pipeline, such as `1.0.0`", 64),
            "description": { "description": "What the pipeline does, for people", "type": ["string", "null"] },
            "metadata": { "description": "Anything else worth knowing; gpux hands it on", "type": ["object", "null"] },
            "model": described("The model: the path of its file, or a mapping with `source`", one_model(&mut generator)),
            "models": described("The models, each under its name", json!({
                "type": "object", "minProperties": 1, "maxProperties": 64,
                "propertyNames": { "minLength": 1, "maxLength": 128 },
                "additionalProperties": one_model(&mut generator),
            })),
            "inputs": section("What a request gives", &many::<ports::RawInput>(&mut generator)),
            "outputs": section("What a request gets", &many::<ports::RawOutput>(&mut generator)),
            "runtime": section("How the models run", &generator.subschema_for::<RuntimeSpec>().to_value()),
            "serving": section("The server", &generator.subschema_for::<ServingSpec>().to_value()),
            "preprocessing": section("Steps before the model, in short", &generator.subschema_for::<preprocessing::RawPreprocessing>().to_value()),
            "pipeline": {
                "description": "The steps, in the order they run",
                "type": "array", "minItems": 1, "maxItems": 256,
            },
        },
    });
    generator.subschema_for::<wasm::RawWasm>();
    generator.subschema_for::<for_each::RawForEach>();
    (file, generator.take_definitions(true).into_iter().collect())
}

/// The longest name of a pipeline, in characters.
pub(crate) const MAX_NAME: usize = 128;

fn text(description: &str, longest: usize) -> Value {
    json!({ "description": description, "type": ["string", "number"], "minLength": 1, "maxLength": longest })
}

fn described(description: &str, mut schema: Value) -> Value {
    schema["description"] = json!(description);
    schema
}

/// A part of the file that may be left empty.
fn section(description: &str, schema: &Value) -> Value {
    json!({ "description": description, "anyOf": [schema, { "type": "null" }] })
}

fn one_model(generator: &mut SchemaGenerator) -> Value {
    let path = json!({ "type": "string", "minLength": 1, "maxLength": 1024 });
    json!({ "anyOf": [generator.subschema_for::<model::RawModel>(), path] })
}

/// Ports: a mapping from names, or a list of mappings with a `name`.
fn many<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    let one = T::json_schema(generator).to_value();
    let mut named = one.clone();
    named["properties"]["name"] = text("Its name", 128);
    if let Some(required) = named["required"].as_array_mut() {
        required.push(json!("name"));
    }
    let kind = generator.subschema_for::<ports::PortType>();
    json!({ "anyOf": [
        { "type": "object", "additionalProperties": { "anyOf": [one, kind] }, "propertyNames": { "minLength": 1, "maxLength": 128 }, "maxProperties": 256 },
        { "type": "array", "items": named, "maxItems": 256 },
    ] })
}
