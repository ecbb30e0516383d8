"""The digits behind FastAPI: `uvicorn --app-dir benches/serve digits_fastapi:app`. The body is the photo."""

from digits_twin import Digits
from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool

app = FastAPI()
digits = Digits()


@app.get("/health")
def health():
    return {"status": "ok"}


@app.post("/predict")
async def predict(request: Request):
    return await run_in_threadpool(digits, await request.body())
