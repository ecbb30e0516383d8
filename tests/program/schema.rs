//! The schema for editors accepts the same files as the program.

use gpux::ConfigParser;
use serde_json::Value as Json;

use crate::digits::{gpux, root, stdout};

#[test]
fn schema_accepts_valid_and_rejects_invalid_files() {
    let schema: Json = serde_json::from_str(&stdout(&gpux(&["schema"]))).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let faults = |json: &Json| validator.iter_errors(json).map(|error| error.to_string()).collect::<Vec<_>>();

    let digits = ConfigParser::parse_file(root().join("gpux.yml")).unwrap();
    let mut json = digits.document().root.to_json();
    assert_eq!(faults(&json), Vec::<String>::new());
    json["pipeline"][2]["resize"]["filter"] = "blurry".into();
    assert_eq!(faults(&json).len(), 1, "{:?}", faults(&json));

    for name in ["seed", "scores", "mistakes", "text", "digits-without-component"] {
        let config = ConfigParser::parse_file(root().join(format!("tests/cases/pipelines/{name}.yml")));
        let Ok(config) = config else {
            assert_eq!(name, "mistakes");
            continue;
        };
        assert_eq!(faults(&config.document().root.to_json()), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn saved_configuration_round_trips() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("gpux.yml");
    let original = ConfigParser::parse_file(root().join("gpux.yml")).unwrap();
    original.save(&saved).unwrap();
    assert_eq!(ConfigParser::parse_file(&saved).unwrap().to_dict(), original.to_dict());
}
