"""Clients of gRPC that give up, servers that end, and both over TLS."""

import re
import tempfile
import threading
import time
import unittest
import urllib.request
from pathlib import Path

import grpc as grpcio
import numpy as np
import tritonclient.grpc as grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from serving import MODELS, ROOT, ServedCase, Serving

CERTIFICATES = ROOT / "tests/tls"


def inputs(array):
    given = grpc.InferInput("x", list(array.shape), "FP32")
    given.set_data_from_numpy(array)
    return [given]


def request(model, array):
    made = service_pb2.ModelInferRequest(model_name=model)
    made.inputs.add(name="x", datatype="FP32", shape=array.shape)
    made.raw_input_contents.append(array.tobytes())
    return made


class OneAtATime(ServedCase):
    """The queue of a server with one worker, before a model that takes a while."""

    LONG = request("patient", np.zeros((256, 256), np.float32))

    @classmethod
    def setUpClass(cls):
        # With time enough for a queue, however slow the machine.
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        Path(folder.name, "gpux.yml").write_text(
            f"name: patient\nversion: 1.0.0\nmodel: {{ source: {MODELS}/slow/model.onnx }}\npipeline: [model]\n"
            "runtime: { timeout: 5min }\nserving: { timeout: 5min }\n")
        cls.ARGUMENTS = (folder.name, "--allow-outside", "--workers", "1")
        super().setUpClass()

    def setUp(self):
        channel = grpcio.insecure_channel(self.address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.addCleanup(channel.close)
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

    def metric(self, name):
        asked = urllib.request.Request(f"http://{self.address}/metrics", headers={"Accept": "text/plain"})
        with urllib.request.urlopen(asked) as answer:
            lines = answer.read().decode().splitlines()
        mine = [line for line in lines if line.startswith(name) and 'pipeline="patient"' in line]
        return sum(float(line.rsplit(" ", 1)[1]) for line in mine)

    def until(self, holds):
        end = time.monotonic() + 60
        while not holds():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.005)

    def waiting(self):
        """Calls of which some wait while another runs."""
        self.stub.ModelInfer(self.LONG)
        calls = [self.stub.ModelInfer.future(self.LONG) for _ in range(8)]
        self.until(lambda: self.metric("gpux_requests_waiting") >= 2 or all(call.done() for call in calls))
        self.assertFalse(all(call.done() for call in calls), "the model is too fast for this test")
        return calls

    def last(self):
        """A call behind all others, once they leave time for it."""
        def runs():
            try:
                return self.stub.ModelInfer(self.LONG, timeout=60)
            except grpcio.RpcError as error:
                self.assertEqual(error.code(), grpcio.StatusCode.UNAVAILABLE)
        self.until(runs)

    def answered(self, calls):
        """How many of them were not given up."""
        return sum(call.exception(timeout=60) is None for call in calls if not call.cancelled())

    def test_what_is_cancelled_in_the_queue_does_not_run(self):
        before = self.metric("gpux_run_duration_seconds_count") + 1
        calls = self.waiting()
        for call in calls:
            call.cancel()
        answered = self.answered(calls)
        self.assertLess(answered, len(calls))
        self.last()
        ran = self.metric("gpux_run_duration_seconds_count") - before - 1
        self.assertLessEqual(ran, answered + 1, "the answered, and what had begun")
        cancelled = 'gpux_requests_total{pipeline="patient",protocol="grpc",status="CANCELLED"}'
        self.until(lambda: self.metric(cancelled) >= 2)

    def test_a_deadline_in_the_queue_is_kept_without_running(self):
        before = self.metric("gpux_run_duration_seconds_count") + 1
        calls = self.waiting()
        with self.assertRaises(grpcio.RpcError) as caught:
            self.stub.ModelInfer(self.LONG, timeout=0.02)
        # The server may have said at once that there would be no time for it.
        self.assertIn(caught.exception.code(), (grpcio.StatusCode.DEADLINE_EXCEEDED, grpcio.StatusCode.UNAVAILABLE))
        answered = self.answered(calls)
        self.last()
        self.assertEqual(self.metric("gpux_run_duration_seconds_count") - before - 1, answered)

    def test_the_deadline_of_a_stream_ends_it(self):
        held = threading.Event()
        self.addCleanup(held.set)

        def messages():
            yield request("matrix", np.zeros((1, 3), np.float32))
            held.wait(60)

        answers = self.stub.ModelStreamInfer(messages(), timeout=0.5)
        self.assertEqual(next(answers).error_message, "")
        with self.assertRaises(grpcio.RpcError) as caught:
            next(answers)
        self.assertEqual(caught.exception.code(), grpcio.StatusCode.DEADLINE_EXCEEDED)


class Ends(unittest.TestCase):
    """Streams that nobody ends."""

    def test_an_idle_stream_does_not_hold_up_the_end(self):
        serving = Serving("--drain", "50s")
        channel = grpcio.insecure_channel(serving.address)
        self.addCleanup(channel.close)
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        held = threading.Event()
        self.addCleanup(held.set)

        def messages():
            for number in range(20):
                yield request("matrix", np.full((1, 3), number, np.float32))
            held.wait(60)

        answers = stub.ModelStreamInfer(messages())
        for _ in range(20):
            self.assertEqual(next(answers).error_message, "")
        watched = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        self.assertEqual(next(iter(watched)), b"\x08\x01")
        serving.process.terminate()
        began = time.monotonic()
        with self.assertRaises(grpcio.RpcError) as caught:
            next(answers)
        self.assertEqual(caught.exception.code(), grpcio.StatusCode.UNAVAILABLE)
        self.assertIn("the server ends", caught.exception.details())
        self.assertEqual(list(watched), [b"\x08\x02"], "it is said that the server is not serving, then no more")
        serving.process.communicate(timeout=60)
        self.assertEqual(serving.process.returncode, 0)
        self.assertLess(time.monotonic() - began, 25, "half of --drain")

    def test_what_a_stream_has_sent_is_answered_before_the_end(self):
        serving = Serving("--workers", "1", "--drain", "50s")
        channel = grpcio.insecure_channel(serving.address)
        self.addCleanup(channel.close)
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        held = threading.Event()
        self.addCleanup(held.set)
        sent = threading.Event()

        def messages():
            for _ in range(30):
                yield request("slow", np.zeros((64, 64), np.float32))
            sent.set()
            held.wait(60)

        answers = stub.ModelStreamInfer(messages())
        first = next(answers)
        sent.wait(60)
        serving.process.terminate()
        received = [first]
        with self.assertRaises(grpcio.RpcError) as caught:
            received.extend(iter(lambda: next(answers), None))
        self.assertEqual(caught.exception.code(), grpcio.StatusCode.UNAVAILABLE)
        self.assertEqual([answer.error_message for answer in received], [""] * 30)
        serving.process.communicate(timeout=60)
        self.assertEqual(serving.process.returncode, 0)

    def test_no_call_is_lost_at_the_end(self):
        serving = Serving("--access-log")
        answered, refused, many = [], [], threading.Event()

        def call_on_and_on():
            with grpcio.insecure_channel(serving.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
                stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
                while not refused:
                    try:
                        stub.ModelInfer(request("matrix", np.zeros((1, 3), np.float32)), timeout=60)
                        answered.append(None)
                    except grpcio.RpcError as error:
                        refused.append((error.code(), error.details()))
                    if len(answered) > 200:
                        many.set()

        callers = [threading.Thread(target=call_on_and_on) for _ in range(4)]
        for caller in callers:
            caller.start()
        many.wait(60)
        serving.process.terminate()
        for caller in callers:
            caller.join(60)
        log, _ = serving.process.communicate(timeout=60)
        self.assertEqual(serving.process.returncode, 0)
        self.assertEqual({code for code, _ in refused}, {grpcio.StatusCode.UNAVAILABLE})
        self.assertTrue(all("failed to connect" in details for _, details in refused), refused)
        # What the server took, its client has heard of.
        self.assertEqual(len(re.findall(r"ModelInfer\S* .*status=0 ", log)), len(answered))


class Tls(ServedCase):
    ARGUMENTS = ("--tls-cert", str(CERTIFICATES / "first.pem"), "--tls-key", str(CERTIFICATES / "first.key"))

    def client(self, address):
        port = re.search(r"\d+$", address)[0]
        return grpc.InferenceServerClient(f"localhost:{port}", ssl=True, root_certificates=str(CERTIFICATES / "ca.pem"))

    def test_calls_and_streams(self):
        array = np.arange(300_000, dtype=np.float32)
        for address in (self.address, self.serving.second):
            with self.client(address) as client:
                self.assertTrue(client.is_server_ready())
                self.assertTrue(np.array_equal(client.infer("identity_fp32", inputs(array)).as_numpy("y"), array))
                answered, results = threading.Semaphore(0), []

                def take(result, error):
                    results.append((result and int(result.as_numpy("y")[0]), error))
                    answered.release()

                client.start_stream(take)
                for number in range(20):
                    client.async_stream_infer("identity_fp32", inputs(np.full(1, number, np.float32)))
                for _ in range(20):
                    self.assertTrue(answered.acquire(timeout=60))
                client.stop_stream()
                self.assertEqual(results, [(number, None) for number in range(20)])

    def test_who_speaks_no_tls_is_not_answered(self):
        channel = grpcio.insecure_channel(self.address)
        self.addCleanup(channel.close)
        with self.assertRaises(grpcio.RpcError) as caught:
            service_pb2_grpc.GRPCInferenceServiceStub(channel).ServerLive(service_pb2.ServerLiveRequest(), timeout=10)
        self.assertIn(caught.exception.code(), (grpcio.StatusCode.UNAVAILABLE, grpcio.StatusCode.DEADLINE_EXCEEDED))


if __name__ == "__main__":
    unittest.main()
