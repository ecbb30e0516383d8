"""Makes small repositories, laid out as on the Hugging Face hub, with random weights: one for each kind of model that
`gpux pull` takes, and what transformers and sentence-transformers give.

    pip install -r requirements.txt && python make_repositories.py [FUNCTION…]
"""
import json
import pathlib
import shutil
import struct
import sys
import tempfile
import warnings

import numpy as np
import onnx
import torch
import transformers as t
from PIL import Image
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers import models as modules
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

warnings.filterwarnings("ignore")
t.logging.set_verbosity_error()
HERE = pathlib.Path(__file__).parent
REPOSITORIES = HERE / "repositories"
TEXTS = ["What is deep learning?", "Anna works in Berlin for Acme.", "a", "The quick brown fox jumps over the lazy dog. " * 9]
EXPECTED = {}


def tokenizer(length=64, cls="[CLS]", sep="[SEP]"):
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["[PAD]", "[UNK]", cls, sep, "[MASK]", *letters, *("##" + c for c in letters), "?", ".", "what", "deep"]
    fast = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    fast.normalizer = normalizers.BertNormalizer()
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    fast.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}", pair=f"{cls} $A {sep} $B:1 {sep}:1", special_tokens=[(cls, 2), (sep, 3)]
    )
    return t.PreTrainedTokenizerFast(
        tokenizer_object=fast, pad_token="[PAD]", unk_token="[UNK]", cls_token=cls, sep_token=sep, mask_token="[MASK]",
        model_max_length=length, model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def bert(**options):
    torch.manual_seed(len(str(options)))
    return t.BertConfig(vocab_size=len(tokenizer()), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=32, max_position_embeddings=64, initializer_range=0.3, **options)


class Wrapped(torch.nn.Module):
    """The model with its inputs by position and its outputs as a tuple."""

    def __init__(self, model, inputs, outputs):
        super().__init__()
        self.model, self.inputs, self.outputs = model, inputs, outputs

    def forward(self, *values):
        given = self.model(**dict(zip(self.inputs, values)), return_dict=True)
        return tuple(given[name] for name in self.outputs)


def export(model, path, examples, outputs, axes):
    path.parent.mkdir(parents=True, exist_ok=True)
    model.eval()
    model.config._attn_implementation = "eager"
    names = list(examples)
    # The exporter brings the module back to the mode that it had.
    torch.onnx.export(Wrapped(model, names, outputs).eval(), tuple(examples.values()), str(path), input_names=names,
                      output_names=outputs, dynamic_axes=axes, opset_version=17, dynamo=False)


def export_text(model, path, outputs, inputs=("input_ids", "attention_mask", "token_type_ids")):
    values = torch.ones((2, 7), dtype=torch.int64)
    axes = {name: {0: "batch_size", 1: "sequence_length"} for name in inputs}
    axes |= {name: {0: "batch_size"} for name in outputs}
    export(model, path, {name: values for name in inputs}, outputs, axes)


def repository(name, model=None, tokens=None):
    folder = REPOSITORIES / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if model is not None:
        model.config.architectures = [type(model).__name__]
        model.config.save_pretrained(folder)
    if tokens is not None:
        tokens.save_pretrained(folder)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\nA test of gpux. Random weights.\n")
    return folder


def classifiers():
    for name, options in {
        "classifier": {"num_labels": 3, "id2label": {0: "red", 1: "green", 2: "dark blue"}},
        "multi-label": {"num_labels": 3, "problem_type": "multi_label_classification"},
        "one-label": {"num_labels": 1},
        "regression": {"num_labels": 1, "problem_type": "regression"},
    }.items():
        model, tokens = t.BertForSequenceClassification(bert(**options)), tokenizer()
        folder = repository(name, model, tokens)
        export_text(model, folder / "onnx/model.onnx", ["logits"])
        pipe = t.pipeline("text-classification", model=model, tokenizer=tokens, top_k=None)
        EXPECTED[name] = [
            {"inputs": {"text": text}, "top": pipe([text], truncation=True)[0]} for text in TEXTS
        ]


def rankers():
    pairs = {"query": TEXTS[0], "documents": TEXTS}
    for name, activation in {"ranker": None, "ranker-identity": torch.nn.Identity()}.items():
        model, tokens = t.BertForSequenceClassification(bert(num_labels=1)), tokenizer()
        with tempfile.TemporaryDirectory() as saved:
            model.save_pretrained(saved)
            tokens.save_pretrained(saved)
            cross = CrossEncoder(saved, activation_fn=activation)
            folder = REPOSITORIES / name
            cross.save_pretrained(str(folder))
        (folder / "model.safetensors").unlink()
        export_text(cross.model, folder / "onnx/model.onnx", ["logits"])
        scores = cross.predict([(pairs["query"], document) for document in pairs["documents"]])
        EXPECTED[name] = [{"inputs": pairs, "scores": scores.tolist()}]
    # As such models were saved before sentence-transformers 4.
    model = t.BertForSequenceClassification(bert(num_labels=1))
    folder = repository("ranker-old", model, tokenizer())
    config = json.loads((folder / "config.json").read_text())
    config["sbert_ce_default_activation_function"] = "torch.nn.modules.linear.Identity"
    (folder / "config.json").write_text(json.dumps(config))
    export_text(model, folder / "model.onnx", ["logits"])
    model.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config))
    cross = CrossEncoder(str(folder))
    (folder / "model.safetensors").unlink()
    scores = cross.predict([(pairs["query"], document) for document in pairs["documents"]])
    EXPECTED["ranker-old"] = [{"inputs": pairs, "scores": scores.tolist()}]


def tokens_and_answers():
    labels = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"}
    model, tokens = t.BertForTokenClassification(bert(num_labels=5, id2label=labels)), tokenizer()
    folder = repository("tagger", model, tokens)
    export_text(model, folder / "onnx/model.onnx", ["logits"])
    pipe = t.pipeline("token-classification", model=model, tokenizer=tokens, aggregation_strategy="simple")
    EXPECTED["tagger"] = [
        {"inputs": {"text": text}, "entities": [{**entity, "score": float(entity["score"])} for entity in pipe(text)]}
        for text in TEXTS[:3]
    ]

    model = t.BertForQuestionAnswering(bert())
    folder = repository("answers", model, tokens)
    export_text(model, folder / "onnx/model.onnx", ["start_logits", "end_logits"])
    # transformers has no pipeline for it since 5; of a text in one window it took the best span by both softmaxes.
    question, context = "who works?", TEXTS[1]
    encoded = tokens(question, context, return_tensors="pt")
    with torch.no_grad():
        given = model.eval()(**encoded)
    inside = torch.tensor([sequence == 1 for sequence in encoded.sequence_ids(0)])
    allowed = inside.clone()
    allowed[0] = True  # [CLS] stands for no answer, and has its part of the probability
    start, end = (scores[0].masked_fill(~allowed, -1e4).softmax(0) * inside for scores in (given.start_logits, given.end_logits))
    spans = torch.triu(start[:, None] * end[None, :]).tril(14)
    # It answered in whole words (align_to_words), and added up the scores of equal ones among the twelve best spans.
    found = {}
    for span in spans.flatten().argsort(descending=True)[:12].tolist():
        words = [encoded.word_to_chars(encoded.token_to_word(0, token), sequence_index=1)
                 for token in divmod(span, spans.shape[1])]
        begin, stop = words[0].start, words[1].end
        answer = {"score": 0.0, "start": begin, "end": stop, "answer": context[begin:stop]}
        found.setdefault(answer["answer"].lower(), answer)["score"] += float(spans.flatten()[span])
    answer = max(found.values(), key=lambda answer: answer["score"])
    EXPECTED["answers"] = [{"inputs": {"question": question, "context": context}, "answer": answer}]


def sentence(name, pooling, normalize, length, outputs=("last_hidden_state",), old=False, settings=None, **prompts):
    with tempfile.TemporaryDirectory() as saved:
        t.BertModel(bert()).save_pretrained(saved)
        tokenizer().save_pretrained(saved)
        parts = [modules.Transformer(saved, max_seq_length=length), modules.Pooling(16, pooling_mode=pooling)]
        model = SentenceTransformer(modules=parts + ([modules.Normalize()] if normalize else []), **prompts)
        folder = REPOSITORIES / name
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(str(folder))
    for file, values in (settings or {}).items():
        (folder / file).write_text(json.dumps(json.loads((folder / file).read_text()) | values, indent=1))
    if settings:
        model = SentenceTransformer(str(folder), device="cpu")
    (folder / "model.safetensors").unlink()
    if old:
        # As sentence-transformers wrote these files before 6.
        mode = {"mean": "mean_tokens", "cls": "cls_token", "lasttoken": "lasttoken", "max": "max_tokens"}
        flags = {f"pooling_mode_{key}": key == mode[pooling] for key in mode.values()}
        (folder / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": 16, **flags}))
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length, "do_lower_case": False}))
    if outputs == ("last_hidden_state",):
        export_text(model[0].auto_model if hasattr(model[0], "auto_model") else model[0].model, folder / "onnx/model.onnx",
                    list(outputs))
    else:
        whole = model

        class All(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.whole = whole

            def forward(self, input_ids, attention_mask, token_type_ids):
                given = self.whole({"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids})
                return tuple(given[output] for output in outputs)

        values = torch.ones((2, 7), dtype=torch.int64)
        names = ["input_ids", "attention_mask", "token_type_ids"]
        axes = {key: {0: "batch_size", 1: "sequence_length"} for key in names} | {key: {0: "batch_size"} for key in outputs}
        (folder / "onnx").mkdir()
        for module in whole.modules():
            if hasattr(module, "config") and hasattr(module.config, "_attn_implementation"):
                module.config._attn_implementation = "eager"
        torch.onnx.export(All().eval(), (values, values, values), str(folder / "onnx/model.onnx"), input_names=names,
                          output_names=list(outputs), dynamic_axes=axes, opset_version=17, dynamo=False)
    EXPECTED[name] = [{"inputs": {"text": text}, "embedding": model.encode(text).tolist()} for text in TEXTS]


def sentences():
    sentence("sentence-mean", "mean", True, 48)
    sentence("sentence-cls", "cls", False, 32, old=True)
    sentence("sentence-last", "lasttoken", True, 48, old=True)
    sentence("sentence-whole", "mean", True, 48, outputs=("token_embeddings", "sentence_embedding"))
    sentence("sentence-max", "max", True, 48, prompts={"query": "query: ", "document": ""}, default_prompt_name="query")
    sentence("sentence-several", ("weightedmean", "cls"), False, 48)
    shards("sentence-mean", "sentence-shards", 6)


def shards(name, to, count):
    """The same repository with its weights in files of their own."""
    shutil.rmtree(REPOSITORIES / to, ignore_errors=True)
    shutil.copytree(REPOSITORIES / name, REPOSITORIES / to)
    folder = REPOSITORIES / to / "onnx"
    model = onnx.load(folder / "model.onnx")
    large = [tensor for tensor in model.graph.initializer if len(tensor.raw_data) >= 1024]
    for number, tensor in enumerate(large):
        with open(folder / f"model.onnx_data_{number % count}", "ab") as shard:
            place = {"location": f"model.onnx_data_{number % count}", "offset": shard.tell(), "length": len(tensor.raw_data)}
            shard.write(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    EXPECTED[to] = EXPECTED[name]


def picture(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    y, x = np.mgrid[0:61, 0:83]
    pixels = np.stack([x * 3 % 256, y * 4 % 256, (x * y) % 256], axis=2).astype(np.uint8)
    Image.fromarray(pixels).save(path)
    return Image.open(path)


def images():
    photo = picture(HERE / "photo.png")
    axes = {"pixel_values": {0: "batch_size"}, "logits": {0: "batch_size"}}
    tiny = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    vit = {**tiny, "image_size": 32, "patch_size": 8, "initializer_range": 0.3}
    resnet = {"embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1], "layer_type": "basic"}
    labels = {0: "cat", 1: "dog", 2: "owl"}
    for name, model, processor in [
        ("image-vit", t.ViTForImageClassification(t.ViTConfig(**vit, id2label=labels)),
         t.ViTImageProcessor(size={"height": 32, "width": 32})),
        ("image-bit", t.ViTForImageClassification(t.ViTConfig(**vit, id2label=labels)),
         t.BitImageProcessor(size={"shortest_edge": 40}, crop_size={"height": 32, "width": 32})),
        ("image-convnext", t.ResNetForImageClassification(t.ResNetConfig(**resnet, id2label=labels)),
         t.ConvNextImageProcessor(size={"shortest_edge": 32}, crop_pct=0.875)),
    ]:
        folder = repository(name, model)
        processor.save_pretrained(folder)
        export(model, folder / "onnx/model.onnx", {"pixel_values": torch.rand((2, 3, 32, 32))}, ["logits"], axes)
        pipe = t.pipeline("image-classification", model=model.eval(), image_processor=processor, top_k=5)
        EXPECTED[name] = [{"inputs": {"image": "photo.png"}, "top": pipe(photo)}]

    model = t.ViTModel(t.ViTConfig(**vit), add_pooling_layer=True)
    processor = t.ViTImageProcessor(size={"height": 32, "width": 32})
    folder = repository("image-vector", model)
    processor.save_pretrained(folder)
    outputs = ["last_hidden_state", "pooler_output"]
    axes = {name: {0: "batch_size"} for name in ["pixel_values", *outputs]}
    export(model, folder / "onnx/model.onnx", {"pixel_values": torch.rand((2, 3, 32, 32))}, outputs, axes)
    with torch.no_grad():
        vector = model.eval()(**processor(photo, return_tensors="pt")).pooler_output
    vector = torch.nn.functional.normalize(vector)
    EXPECTED["image-vector"] = [{"inputs": {"image": "photo.png"}, "embedding": vector[0].tolist()}]


def speech():
    letters = {letter: i for i, letter in enumerate(["<pad>", "<s>", "</s>", "<unk>", "|", *"abcdefghij"])}
    config = t.Wav2Vec2Config(vocab_size=len(letters), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                              intermediate_size=32, conv_dim=[8, 8], conv_stride=[40, 8], conv_kernel=[80, 16],
                              num_feat_extract_layers=2, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2,
                              initializer_range=0.5, do_stable_layer_norm=False)
    torch.manual_seed(3)
    model = t.Wav2Vec2ForCTC(config)
    folder = repository("speech", model)
    vocabulary = folder / "vocab.json"
    vocabulary.write_text(json.dumps(letters))
    tokens = t.Wav2Vec2CTCTokenizer(str(vocabulary))
    features = t.Wav2Vec2FeatureExtractor(feature_size=1, sampling_rate=16000, do_normalize=True)
    tokens.save_pretrained(folder)
    features.save_pretrained(folder)
    export(model, folder / "onnx/model.onnx", {"input_values": torch.rand((2, 16000))}, ["logits"],
           {"input_values": {0: "batch_size", 1: "samples"}, "logits": {0: "batch_size", 1: "frames"}})
    sound = (np.sin(np.arange(16000) ** 1.3 / 30) * 12000).astype("<i2")
    header = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + sound.nbytes, b"WAVE", b"fmt ", 16, 1, 1, 16000, 32000, 2, 16,
                         b"data", sound.nbytes)
    (HERE / "sound.wav").write_bytes(header + sound.tobytes())
    inputs = features(sound.astype(np.float32) / 32768, sampling_rate=16000, return_tensors="pt")
    with torch.no_grad():
        ids = model.eval()(inputs.input_values).logits.argmax(-1)
    EXPECTED["speech"] = [{"inputs": {"audio": "sound.wav"}, "text": tokens.decode(ids[0])}]


def picture_classifier(name, seed, processor, **options):
    torch.manual_seed(seed)
    model = t.ViTForImageClassification(t.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=32, patch_size=8,
        initializer_range=0.3, **options))
    folder = repository(name, model)
    processor.save_pretrained(folder)
    axes = {"pixel_values": {0: "batch_size"}, "logits": {0: "batch_size"}}
    export(model, folder / "onnx/model.onnx", {"pixel_values": torch.rand((2, 3, 32, 32))}, ["logits"], axes)
    pipe = t.pipeline("image-classification", model=model.eval(), image_processor=processor, top_k=5)
    EXPECTED[name] = [{"inputs": {"image": "photo.png"}, "top": pipe(picture(HERE / "photo.png"))}]


def picture_scores():
    """Classifiers of pictures with other numbers than those of one label of several."""
    for name, options in {
        "image-one-label": {"num_labels": 1},
        "image-multi-label": {"num_labels": 3, "problem_type": "multi_label_classification"},
        "image-regression": {"num_labels": 1, "problem_type": "regression"},
    }.items():
        picture_classifier(name, 4, t.ViTImageProcessor(size={"height": 32, "width": 32}), **options)


def picture_crops():
    """An odd number of pixels beside what is cut out, and the nearest pixels."""
    for name, options in {"image-odd-crop": {}, "image-nearest": {"resample": 0}}.items():
        crop = t.BitImageProcessor(size={"shortest_edge": 41}, crop_size={"height": 32, "width": 32}, **options)
        picture_classifier(name, 5, crop, num_labels=3)


def rankers_with_prompts():
    pairs = {"query": TEXTS[0], "documents": TEXTS}
    model, tokens = t.BertForSequenceClassification(bert(num_labels=1)), tokenizer(48)
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)
        tokens.save_pretrained(saved)
        cross = CrossEncoder(saved, prompts={"web": "find: "}, default_prompt_name="web")
        folder = repository("ranker-prompt")
        cross.save_pretrained(str(folder))
    (folder / "model.safetensors").unlink()
    export_text(model, folder / "onnx/model.onnx", ["logits"])
    scores = cross.predict([(pairs["query"], document) for document in pairs["documents"]])
    EXPECTED["ranker-prompt"] = [{"inputs": pairs, "scores": scores.tolist()}]


def keys_of_sentences():
    """Keys that change a vector: what stands in them is not the default."""
    sentence("sentence-first", "mean", True, 48, truncate_dim=5)
    sentence("sentence-left", "mean", True, None, settings={
        "tokenizer_config.json": {"truncation_side": "left"},
        "sentence_bert_config.json": {"processing_kwargs": {"text": {"max_length": 16, "truncation": True}}},
    })


MAKERS = [classifiers, rankers, tokens_and_answers, sentences, images, speech, picture_scores, picture_crops,
          rankers_with_prompts, keys_of_sentences]


def main():
    for make in MAKERS:
        if len(sys.argv) < 2 or make.__name__ in sys.argv[1:]:
            make()
    written = HERE / "expected.json"
    before = json.loads(written.read_text()) if written.is_file() else {}
    written.write_text(json.dumps(before | EXPECTED, indent=1) + "\n")
    sizes = {path.name: sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) for path in REPOSITORIES.iterdir()}
    print(sizes, file=sys.stderr)


if __name__ == "__main__":
    main()
