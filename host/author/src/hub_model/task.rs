//! What a model of the hub does.

use std::fmt;
use std::str::FromStr;

use super::fault::HubModelFault;

/// A task, by the hub's name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HubTask {
    /// a text gets labels
    TextClassification,
    /// documents get scores for a query
    TextRanking,
    /// words of a text get labels
    TokenClassification,
    /// an answer is found in a text
    QuestionAnswering,
    /// a text becomes a vector
    SentenceSimilarity,
    /// a picture gets labels
    ImageClassification,
    /// a picture becomes a vector
    ImageFeatureExtraction,
    /// speech becomes text
    SpeechRecognition,
}

/// Heads of models that no pipeline is made for yet, and what it lacks.
const OTHER_HEADS: [(&str, &str); 14] = [
    ("ForObjectDetection", "the boxes of object detection (DETR, YOLOS) need a step of your own"),
    ("ForSemanticSegmentation", "class maps of another size than the picture need a step of your own"),
    ("ForInstanceSegmentation", "masks of instances need a step of your own"),
    ("ForUniversalSegmentation", "masks of segments need a step of your own"),
    ("ForImageSegmentation", "masks of segments need a step of your own"),
    ("ForDepthEstimation", "maps of depth need a step of your own"),
    ("ForZeroShotImageClassification", "it takes pictures and texts together"),
    ("ForMaskedLM", "it fills a gap in a text, which no step does; a sentence embedding needs its `modules.json`"),
    ("ForCausalLM", "it writes text, which gpux does with a step of your own only"),
    ("LMHeadModel", "it writes text, which gpux does with a step of your own only"),
    (
        "ForConditionalGeneration",
        "it writes text in a loop over a decoder, which gpux does with a step of your own only",
    ),
    ("ForSpeechSeq2Seq", "it writes text in a loop over a decoder, which gpux does with a step of your own only"),
    ("ForAudioClassification", "its features of sound are Kaldi's, which are not taken over yet"),
    ("ForMultipleChoice", "it takes several texts for one answer, which no step does"),
];
/// Models that take pictures and texts, or several of them.
const PAIRS: [&str; 6] = ["CLIPModel", "SiglipModel", "Siglip2Model", "AltCLIPModel", "ClapModel", "ChineseCLIPModel"];

impl HubTask {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::TextClassification,
        Self::TextRanking,
        Self::TokenClassification,
        Self::QuestionAnswering,
        Self::SentenceSimilarity,
        Self::ImageClassification,
        Self::ImageFeatureExtraction,
        Self::SpeechRecognition,
    ];

    /// The hub's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TextClassification => "text-classification",
            Self::TextRanking => "text-ranking",
            Self::TokenClassification => "token-classification",
            Self::QuestionAnswering => "question-answering",
            Self::SentenceSimilarity => "sentence-similarity",
            Self::ImageClassification => "image-classification",
            Self::ImageFeatureExtraction => "image-feature-extraction",
            Self::SpeechRecognition => "automatic-speech-recognition",
        }
    }

    /// The task of an architecture, such as `BertForTokenClassification`. `takes_pictures` tells for one without a head.
    pub(super) fn of_architecture(architecture: &str, takes_pictures: bool) -> Result<Self, HubModelFault> {
        const HEADS: [(&str, HubTask); 6] = [
            ("ForSequenceClassification", HubTask::TextClassification),
            ("ForTokenClassification", HubTask::TokenClassification),
            ("ForQuestionAnswering", HubTask::QuestionAnswering),
            ("ForImageClassification", HubTask::ImageClassification),
            ("ForImageClassificationWithTeacher", HubTask::ImageClassification),
            ("ForCTC", HubTask::SpeechRecognition),
        ];
        let unsupported =
            |missing: &'static str| HubModelFault::Architecture { architecture: architecture.to_owned(), missing };
        if let Some((_, task)) = HEADS.iter().find(|(head, _)| architecture.ends_with(head)) {
            return Ok(*task);
        }
        if let Some((_, missing)) = OTHER_HEADS.iter().find(|(head, _)| architecture.ends_with(head)) {
            return Err(unsupported(missing));
        }
        if PAIRS.contains(&architecture) {
            return Err(unsupported("it takes pictures and texts together; export one half of it"));
        }
        match () {
            () if !architecture.ends_with("Model") && !architecture.ends_with("WithProjection") => {
                Err(unsupported("gpux knows no pipeline for it"))
            }
            () if takes_pictures => Ok(Self::ImageFeatureExtraction),
            () => Ok(Self::SentenceSimilarity),
        }
    }
}

impl fmt::Display for HubTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for HubTask {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|task| task.name() == name).ok_or("no pipeline is made for such a task")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_task_of_an_architecture() {
        let of = |architecture, pictures| HubTask::of_architecture(architecture, pictures).ok();
        assert_eq!(of("BertForSequenceClassification", false), Some(HubTask::TextClassification));
        assert_eq!(of("DeiTForImageClassificationWithTeacher", true), Some(HubTask::ImageClassification));
        assert_eq!(of("Dinov2Model", true), Some(HubTask::ImageFeatureExtraction));
        assert_eq!(of("CLIPVisionModelWithProjection", true), Some(HubTask::ImageFeatureExtraction));
        assert_eq!(of("BertModel", false), Some(HubTask::SentenceSimilarity));
        for other in ["CLIPModel", "BertForMaskedLM", "DetrForObjectDetection", "GPT2LMHeadModel", "Strange"] {
            assert_eq!(of(other, false), None, "{other}");
        }
    }
}
