//! An option whose value stands in the metadata of a model.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use gpux_core::{BuildError, OptionOrigin, class_names};

/// A text in the metadata of a model of the pipeline: `{ model: reader, key: names }`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct MetadataSource {
    /// The name of the model in gpux.yml. Default: the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// The key in its metadata, as `gpux inspect` shows it. Required.
    key: String,
}

impl MetadataSource {
    /// The names in the text, by their numbers, for the option `option`.
    pub(crate) fn names(&self, option: &str, site: &OptionOrigin<'_>) -> Result<Vec<String>, BuildError> {
        let text = site.model_metadata(self.model.as_deref(), &self.key);
        let text = text.map_err(|why| BuildError::option(option, why))?;
        class_names(text).map_err(|why| {
            BuildError::option(option, format!("`{}` in the model's metadata has no names: {why}", self.key))
                .with_hint("names are a list or a dictionary by numbers, as JSON or Python writes it, or one a line")
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use gpux_core::{ModelMetadata, ProjectFiles};

    #[test]
    fn reads_names_of_a_model() {
        let files = ProjectFiles::new(".", false);
        let mut models = ModelMetadata::default();
        let texts =
            [("names", "{0: 'cat'}"), ("task", "{detect}")].map(|(key, text)| (key.to_owned(), text.to_owned()));
        models.insert("reader", texts.into(), BTreeSet::new());
        let site = OptionOrigin::Pipeline { files: &files, models: &models };
        let names = |source: serde_json::Value, site: &OptionOrigin<'_>| {
            serde_json::from_value::<MetadataSource>(source).unwrap().names("labels", site)
        };
        assert_eq!(names(serde_json::json!({"key": "names"}), &site).unwrap(), ["cat"]);
        assert_eq!(names(serde_json::json!({"model": "reader", "key": "names"}), &site).unwrap(), ["cat"]);
        for (source, why) in [
            (serde_json::json!({"key": "name"}), "has no `name`, but `names` and `task`"),
            (serde_json::json!({"model": "writer", "key": "names"}), "no model `writer`, but `reader`"),
            (serde_json::json!({"key": "task"}), "has no names: it is neither JSON"),
        ] {
            let error = names(source, &site).unwrap_err();
            assert!(error.message.contains(why), "{error}");
        }
        let error = names(serde_json::json!({"key": "names"}), &OptionOrigin::Component).unwrap_err();
        assert!(error.message.contains("a component may not read the metadata of models"));
    }
}
