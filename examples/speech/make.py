"""Makes the models, the tokenizer and the sounds of this example, and records what the same chain gives in Python.

    python -m venv venv && venv/bin/pip install -r ../requirements.txt && venv/bin/python make.py

The models are transformers' Whisper, one thin layer each, with random weights: the words mean nothing,
that gpux writes the same does. Any Whisper exported to ONNX as here takes their place.
"""

import json
import wave
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

HERE = Path(__file__).parent
RATE, SECONDS, MOST, SEED = 16000, 2, 24, 8
SPECIAL = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"]
END, BEGIN = 0, [1, 2, 3, 4]
WORDS = """a again all along and are at bird boat by cloud come day down each far field fire for from garden go green
hear high hill home house in is it lake light long low moon moor near night not of old on out over rain river road
sea see shore sing sky slow snow song star stone sun the then they to tree under up wait walk wind with""".split()


def tokenizer():
    """Whisper's form: byte-level pieces, the space before a word part of it."""
    vocabulary = {piece: token for token, piece in enumerate(SPECIAL + ["Ġ" + word for word in WORDS])}
    made = Tokenizer(models.BPE(vocabulary, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in SPECIAL])
    made.save(str(HERE / "tokenizer.json"), pretty=False)
    return made


def sound(name, pitches, vowels):
    """Something like a voice: for each vowel a buzz of harmonics, strongest at its formants, with a pause behind."""
    rng = np.random.default_rng(5)
    pieces = []
    for pitch, formants in zip(pitches, vowels):
        time = np.arange(int(0.35 * RATE)) / RATE
        buzz = np.zeros_like(time)
        for harmonic in np.arange(pitch, 4000, pitch):
            strength = sum(np.exp(-(((harmonic - formant) / 120) ** 2)) for formant in formants)
            buzz += (0.02 + strength) * np.sin(2 * np.pi * harmonic * time)
        pieces += [buzz * np.hanning(len(time)), np.zeros(int(0.08 * RATE))]
    samples = np.concatenate(pieces)
    samples = 0.6 * samples / np.abs(samples).max() + 0.003 * rng.normal(size=len(samples))
    with wave.open(str(HERE / name), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((samples * 32767).round().astype("<i2").tobytes())


class Decoder(torch.nn.Module):
    def __init__(self, whisper):
        super().__init__()
        self.decoder, self.scores = whisper.model.decoder, whisper.proj_out
        longest = whisper.config.max_target_positions
        self.register_buffer("later", torch.full((1, 1, longest, longest), -1e9).triu(1), persistent=False)

    def forward(self, input_ids, encoder_hidden_states):
        length = input_ids.shape[1]
        written = self.decoder(
            input_ids=input_ids, attention_mask=self.later[:, :, :length, :length],
            encoder_hidden_states=encoder_hidden_states, use_cache=False)
        return self.scores(written.last_hidden_state)


class Encoder(torch.nn.Module):
    def __init__(self, whisper):
        super().__init__()
        self.encoder = whisper.model.encoder

    def forward(self, input_features):
        return self.encoder(input_features).last_hidden_state


def export():
    torch.manual_seed(SEED)
    whisper = WhisperForConditionalGeneration(WhisperConfig(
        vocab_size=len(SPECIAL) + len(WORDS), num_mel_bins=80, d_model=32, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64,
        max_source_positions=SECONDS * 50, max_target_positions=len(BEGIN) + MOST, pad_token_id=END, bos_token_id=END,
        eos_token_id=END, decoder_start_token_id=BEGIN[0], attn_implementation="eager")).eval()
    with torch.no_grad():
        # Weights as they are drawn give nearly the same scores whatever is heard and written.
        for name, weight in whisper.named_parameters():
            if weight.dim() > 1 and "encoder.embed_positions" not in name:
                weight *= 3 if "conv" in name else 20 if "fc" in name or "embed_positions" in name else 8
    torch.onnx.export(
        Encoder(whisper), torch.zeros(1, 80, SECONDS * 100), HERE / "encoder.onnx",
        input_names=["input_features"], output_names=["last_hidden_state"], dynamo=False)
    torch.onnx.export(
        Decoder(whisper), (torch.tensor([BEGIN]), torch.zeros(1, SECONDS * 50, 32)), HERE / "decoder.onnx",
        input_names=["input_ids", "encoder_hidden_states"], output_names=["logits"],
        dynamic_axes={"input_ids": {1: "length"}, "logits": {1: "length"}}, dynamo=False)


def write_down(name):
    with wave.open(str(HERE / name)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
    features = WhisperFeatureExtractor(feature_size=80, chunk_length=SECONDS)(samples, sampling_rate=RATE, return_tensors="np")
    encoder, decoder = (onnxruntime.InferenceSession(HERE / file) for file in ("encoder.onnx", "decoder.onnx"))
    (heard,) = encoder.run(None, {"input_features": features["input_features"]})
    tokens, leads = list(BEGIN), []
    while len(tokens) < len(BEGIN) + MOST:
        scores = decoder.run(None, {"input_ids": np.array([tokens]), "encoder_hidden_states": heard})[0][0, -1]
        best = int(scores.argmax())
        leads.append(float(scores[best] - np.partition(scores, -2)[-2]))
        if best == END:
            break
        tokens.append(best)
    return tokens, min(leads)


if __name__ == "__main__":
    spoken = tokenizer()
    sound("low.wav", [110, 120, 105, 98], [(730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (570, 840, 2410)])
    sound("high.wav", [210, 245, 230, 200], [(370, 3200), (950, 1500, 2900), (430, 2800), (610, 2300, 3000)])
    export()
    cases = []
    for name in ("low.wav", "high.wav"):
        tokens, lead = write_down(name)
        print(name, tokens, f"{lead:.3f}", spoken.decode(tokens))
        assert lead > 1e-3, "two words are so near to each other that engines may differ"
        output = {"tokens": [tokens], "text": spoken.decode(tokens)}
        cases.append({"args": ["--allow-outside", "--file", name], "output": output, "tolerance": 0})
    (HERE / "expected.json").write_text(json.dumps(cases, indent=1) + "\n")
