"""Writes the answers that `qa-span` is compared with: version 5 of transformers has no such pipeline.

    python -m venv venv && venv/bin/pip install -r requirements-text-qa.txt && venv/bin/python make_text_qa.py
"""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast
from transformers.pipelines.question_answering import QuestionAnsweringPipeline

HERE = Path(__file__).parent
SPECIAL = {
    "wordpiece": {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"},
    "unigram": {"unk_token": "<unk>", "pad_token": "<pad>", "cls_token": "<s>"},
}
QUESTION = "What gets its own sandbox?"
CONTEXTS = [
    "Every request gets its own sandbox around native inference. It's a model's job, isn't it? The fox, the FOX, the fox.",
    "Größe, naïve café and façade; 日本語の テキスト, 中文 😀 and more unbelievable believers.",
    "short",
]


class Array(np.ndarray):
    """What the pipeline asks of a tensor."""

    def numpy(self):
        return np.asarray(self)


def numbers(array):
    return {"shape": array.shape, "data": [float(str(x)) for x in array.ravel()]}


def main():
    rng = np.random.default_rng(17)
    cases = []
    for name, special in SPECIAL.items():
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer.from_file(str(HERE / "tokenize" / f"{name}.json")), padding_side="right", **special)
        pipeline = QuestionAnsweringPipeline.__new__(QuestionAnsweringPipeline)
        pipeline.tokenizer, pipeline.framework = tokenizer, "np"
        for context in CONTEXTS:
            for options in [{"max_length": 384, "stride": 128}, {"max_length": 40, "stride": 8}]:
                encoded = tokenizer(QUESTION, context, truncation="only_second", padding="longest",
                                    return_overflowing_tokens=True, return_offsets_mapping=True, **options)
                shape = np.array(encoded["input_ids"]).shape
                start, end = (rng.normal(0, 2, shape).round(5).astype(np.float32) for _ in range(2))
                case = {"tokenizer": name, "question": QUESTION, "context": context, "options": options,
                        "start": numbers(start), "end": numbers(end), "answers": []}
                for top_k, most, impossible, align in [(1, 15, False, True), (1, 15, True, True), (5, 4, True, True),
                                                       (5, 15, False, False), (40, 100, False, True), (1, 1, False, False)]:
                    outputs = []
                    for row in range(shape[0]):
                        p_mask = [which != 1 for which in encoded.sequence_ids(row)]
                        for at in np.nonzero(np.array(encoded["input_ids"][row]) == tokenizer.cls_token_id)[0]:
                            p_mask[at] = 0
                        # Those that only wait for their tensor: what the pipeline hands from step to step.
                        outputs.append({
                            "start": start[row][None], "end": end[row][None], "p_mask": np.array(p_mask)[None],
                            "attention_mask": np.array(encoded["attention_mask"][row])[None].view(Array),
                            "encoding": encoded[row], "example": SimpleNamespace(context_text=context),
                        })
                    found = pipeline.postprocess(outputs, top_k=top_k, handle_impossible_answer=impossible,
                                                 max_answer_len=most, align_to_words=align)
                    found = found if isinstance(found, list) else [found]
                    case["answers"].append({
                        "options": {"top_k": top_k, "max_answer_length": most, "impossible": impossible}, "align": align,
                        # Spans that end before they begin fill up the list there, with a score of 0.
                        "answers": [answer for answer in found if answer["score"] > 0],
                    })
                cases.append(case)
    text = json.dumps(cases, ensure_ascii=True, separators=(",", ":"))
    (HERE / "output" / "qa-span.json").write_text(text + "\n")
    print(f"{len(text) / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
