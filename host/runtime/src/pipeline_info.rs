//! What callers of a pipeline need to know about it, as plain data, which another process can have too.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::endpoints::Endpoints;
use super::pipeline::Pipeline;
use super::precision::ModelPrecision;
use super::space::Space;
use gpux_core::files::FileVersions;
use gpux_core::{BRANCH, PlanOutput, PlanSignature, Port, Request, TimeLimit, Value};
use gpux_inference::{ExecutionProvider, ProviderManager};

/// A loaded pipeline, described.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PipelineInfo {
    /// its name in gpux.yml
    pub name: String,
    /// its version in gpux.yml
    pub version: String,
    /// the digest of its manifest in the store, if it is loaded from there
    pub digest: Option<String>,
    /// one line for people
    pub description: Option<String>,
    /// its inputs and outputs
    pub signature: PlanSignature,
    /// the names of its steps, in order
    pub steps: Vec<String>,
    /// its models, in the order of the file
    pub models: Vec<ModelSummary>,
    /// the size of its models' files, in bytes
    pub model_bytes: u64,
    /// the engine that runs its models, with version and provider, for people
    pub engine: String,
    /// the full names of the execution providers that the engine offers, best first
    pub available_providers: Vec<String>,
    /// warnings: providers passed over, engines not loaded
    pub warnings: Vec<String>,
    /// every file that it was loaded from
    pub files: FileVersions,
    /// the timeout of a request in a server: the lesser of `serving.timeout` and `runtime.timeout`
    pub timeout: TimeLimit,
    /// the number of requests to run concurrently: the capacity of a model's instances
    pub concurrency: usize,
    /// the endpoints of other servers' clients that it answers
    pub endpoints: Endpoints,
    /// which vectors can lie in one index with those that it gives, if it gives any
    pub space: Option<Space>,
    /// further names by which those clients may call it
    pub aliases: Vec<String>,
    branches: BTreeMap<String, Vec<PlanOutput>>,
    media_types: BTreeMap<String, String>,
    labels: BTreeMap<String, Vec<String>>,
    probabilities: BTreeSet<String>,
    output_descriptions: BTreeMap<String, String>,
}

/// A model of a pipeline, described.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModelSummary {
    /// the name that the pipeline gives it
    pub name: String,
    /// as declared, else the one that its file says
    pub version: String,
    /// the name of its file, without folders
    pub file_name: String,
    /// the digest of its file
    pub digest: String,
    /// the name of the engine that runs it
    pub engine: String,
    /// the execution provider that runs it
    pub provider: ExecutionProvider,
    /// the provider, described as JSON
    pub provider_info: serde_json::Value,
    /// what it is computed in
    pub precision: ModelPrecision,
    /// sessions that are there for a single caller
    pub instances: usize,
    /// whether it runs several requests together
    pub is_batched: bool,
}

impl PipelineInfo {
    /// The outputs of a request: those of the branch that it selects, if it does.
    pub fn promised_outputs(&self, request: &Request) -> &[PlanOutput] {
        match request.iter().find(|(name, _)| name == BRANCH) {
            Some((_, Value::Text(name))) => self.branches.get(&**name).map_or(&[], Vec::as_slice),
            _ => self.signature.outputs(),
        }
    }

    /// The labels that the file declares for an output; none where it declares none.
    pub fn labels(&self, output: &str) -> &[String] {
        self.labels.get(output).map_or(&[], Vec::as_slice)
    }

    /// The media type of an input of bytes, `image/*` or `audio/*`: as declared, else from the step that reads it.
    pub fn media_type(&self, port: &Port) -> Option<&str> {
        self.media_types.get(&port.name).map(String::as_str)
    }

    /// Whether the scores of an output come from `softmax` or `sigmoid`.
    pub fn is_probability(&self, output: &str) -> bool {
        self.probabilities.contains(output)
    }

    /// What the file says about an output; empty where it says nothing.
    pub fn output_description(&self, output: &str) -> &str {
        self.output_descriptions.get(output).map_or("", String::as_str)
    }

    /// Whether this is the same pipeline from the same files.
    pub fn is_same_as(&self, other: &Self) -> bool {
        let models = |info: &Self| info.models.iter().map(|model| model.digest.clone()).collect::<Vec<_>>();
        (&self.name, &self.version, &self.steps) == (&other.name, &other.version, &other.steps)
            && models(self) == models(other)
            && self.files == other.files
    }

    /// Whether requests wait for each other, so that a model runs several together.
    pub fn is_batched(&self) -> bool {
        self.models.iter().any(|model| model.is_batched)
    }
}

#[doc(hidden)]
impl Pipeline {
    /// Describes the pipeline.
    pub fn info(&self) -> PipelineInfo {
        let (spec, plan) = (self.spec(), self.plan());
        let media_type = |port: &Port| Some((port.name.clone(), self.media_type(port)?.to_owned()));
        let description = |output: &str| {
            let declared = spec.outputs.iter().find(|declared| declared.name.value == output)?;
            Some((output.to_owned(), declared.description.clone()?))
        };
        let outputs = || plan.outputs().iter().map(|output| output.name.as_str());
        let engine = self.models().next().map(|(_, model)| ProviderManager::new(model.engine()));
        let available = engine.as_ref().map(ProviderManager::available_providers).unwrap_or_default();
        PipelineInfo {
            name: spec.name.value.clone(),
            version: spec.version.value.clone(),
            digest: self.source().digest(),
            description: spec.description.clone(),
            signature: plan.signature().clone(),
            steps: plan.steps().iter().map(|step| step.name.clone()).collect(),
            models: self.model_summaries(),
            model_bytes: self.model_bytes(),
            engine: self.engine().to_owned(),
            available_providers: available.into_iter().map(str::to_owned).collect(),
            warnings: self.warnings().to_owned(),
            files: self.files().clone(),
            timeout: self.serving_time_limit(),
            concurrency: self.concurrency(),
            endpoints: self.endpoints.clone(),
            space: self.space.clone(),
            aliases: spec.serving.aliases.clone(),
            branches: plan.branches().map(|(name, branch)| (name.to_owned(), branch.outputs().to_owned())).collect(),
            media_types: plan.inputs().iter().filter_map(|input| media_type(&input.port)).collect(),
            labels: self.all_labels().clone(),
            probabilities: outputs().filter(|output| self.is_probability(output)).map(str::to_owned).collect(),
            output_descriptions: outputs().filter_map(description).collect(),
        }
    }

    fn model_summaries(&self) -> Vec<ModelSummary> {
        let summaries = self.precisions().map(|(name, model, precision): (_, _, &ModelPrecision)| {
            let providers = ProviderManager::new(model.engine());
            let file_name = model.file().path().file_name().unwrap_or_default();
            ModelSummary {
                name: name.to_owned(),
                version: self.model_version(name).unwrap_or_default().to_owned(),
                file_name: file_name.to_string_lossy().into_owned(),
                digest: model.file().digest().to_owned(),
                engine: model.engine().name().to_owned(),
                provider: model.provider(),
                provider_info: serde_json::json!(providers.provider_info(model.provider())),
                precision: precision.clone(),
                instances: model.sessions().instances(),
                is_batched: model.batcher().is_some_and(|batcher| batcher.is_ok()),
            }
        });
        summaries.collect()
    }
}
