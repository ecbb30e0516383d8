"""Makes the models that benches run beside tests/models: the shapes of real networks, random weights.

    python benches/models.py     (needs torch, torchvision, transformers and onnx)

Writes target/bench-models/: mobilenet.onnx, resnet50.onnx (image float32[N, 3, 224, 224] → float32[N, 1000]) and
minilm.onnx (input_ids and attention_mask int64[N, length] → float32[N, length, 384]).
"""

from pathlib import Path

import torch
import torchvision
from transformers import BertConfig, BertModel

FOLDER = Path(__file__).parent.parent / "target" / "bench-models"


class Tokens(torch.nn.Module):
    """BERT's vectors of the tokens, and nothing else."""

    def __init__(self, bert):
        super().__init__()
        self.bert = bert

    def forward(self, input_ids, attention_mask):
        return self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


def export(name, model, inputs, names, output, axes):
    torch.onnx.export(
        model.eval(), inputs, FOLDER / f"{name}.onnx", input_names=names, output_names=[output],
        dynamic_axes=axes, opset_version=17, dynamo=False,
    )


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    image = (torch.zeros(1, 3, 224, 224),)
    axes = {"image": {0: "N"}, "scores": {0: "N"}}
    export("mobilenet", torchvision.models.mobilenet_v2(weights=None), image, ["image"], "scores", axes)
    export("resnet50", torchvision.models.resnet50(weights=None), image, ["image"], "scores", axes)
    config = BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536, attn_implementation="eager"
    )
    text = (torch.ones(1, 16, dtype=torch.int64), torch.ones(1, 16, dtype=torch.int64))
    both = {0: "N", 1: "length"}
    export(
        "minilm", Tokens(BertModel(config, add_pooling_layer=False)), text, ["input_ids", "attention_mask"], "tokens",
        {"input_ids": both, "attention_mask": both, "tokens": both},
    )


main()
