"""NVIDIA's gRPC clients: synchronous, asynchronous, asyncio, streaming."""

import asyncio
import queue
import unittest

import grpc as grpcio
import numpy as np
import tritonclient.grpc as grpc
import tritonclient.grpc.aio as aio
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from serving import EXTREMES, ServedCase, same

# The field of InferTensorContents that holds a datatype's elements.
CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}


def inputs(api, datatype, array):
    given = api.InferInput("x", list(array.shape), datatype)
    given.set_data_from_numpy(array)
    return [given]


class Synchronous(ServedCase):
    def setUp(self):
        self.client = grpc.InferenceServerClient(self.address)
        self.addCleanup(self.client.close)

    def status(self, call):
        with self.assertRaises(InferenceServerException) as caught:
            call()
        return caught.exception.status()

    def test_server_and_models_are_described(self):
        client = self.client
        self.assertTrue(client.is_server_live() and client.is_server_ready())
        self.assertTrue(client.is_model_ready("matrix", "1"))
        self.assertEqual(client.get_server_metadata().name, "gpux")
        model = client.get_model_metadata("matrix")
        self.assertEqual((model.platform, list(model.inputs[0].shape)), ("onnx_onnxv1", [-1, 3]))
        config = client.get_model_config("matrix").config
        self.assertEqual((config.max_batch_size, config.input[0].data_type), (0, 11))
        self.assertEqual(config.default_model_filename, "model.onnx")
        group, = config.instance_group
        self.assertEqual((group.kind, group.count), (model_config_pb2.ModelInstanceGroup.KIND_CPU, 1))
        self.assertFalse(client.is_model_ready("nobody"))
        self.assertFalse(client.is_model_ready("matrix", "9"))
        self.assertEqual(self.status(lambda: client.is_model_ready("matrix", "new")), "StatusCode.INVALID_ARGUMENT")
        index = {entry.name: entry.state for entry in client.get_model_repository_index().models}
        self.assertEqual(index["text"], "READY")

    def test_every_datatype_at_its_extremes(self):
        for datatype, array in EXTREMES.items():
            with self.subTest(datatype):
                result = self.client.infer(f"identity_{datatype.lower()}", inputs(grpc, datatype, array),
                                           request_id="7", model_version="1")
                self.assertTrue(same(result.as_numpy("y"), array), result.as_numpy("y"))
                self.assertEqual((result.get_response().id, result.get_response().model_version), ("7", "1"))

    def test_typed_contents_are_read_and_given_where_they_are_asked_for(self):
        channel = grpcio.insecure_channel(self.address)
        self.addCleanup(channel.close)
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for datatype, field in CONTENTS.items():
            items = EXTREMES[datatype].tolist()
            items = [item.encode() for item in items] if datatype == "BYTES" else items
            request = service_pb2.ModelInferRequest(model_name=f"identity_{datatype.lower()}")
            tensor = request.inputs.add(name="x", datatype=datatype, shape=[len(items)])
            getattr(tensor.contents, field).extend(items)
            with self.subTest(datatype):
                # NVIDIA's decoder knows raw contents only.
                response = grpc.InferResult(stub.ModelInfer(request))
                self.assertTrue(same(response.as_numpy("y"), EXTREMES[datatype]))
                request.parameters["binary_data_output"].bool_param = False
                response = stub.ModelInfer(request)
                self.assertEqual(len(response.raw_output_contents), 0)
                self.assertEqual(list(getattr(response.outputs[0].contents, field)), items)
        request = service_pb2.ModelInferRequest(model_name="identity_int8")
        request.inputs.add(name="x", datatype="INT8", shape=[1]).contents.int_contents.append(300)
        with self.assertRaises(grpcio.RpcError) as caught:
            stub.ModelInfer(request)
        self.assertEqual(caught.exception.code(), grpcio.StatusCode.INVALID_ARGUMENT)

    def test_statuses_of_errors(self):
        floats = inputs(grpc, "FP32", np.zeros(2, np.float32))
        for name, status in (("nobody", "NOT_FOUND"), ("matrix", "INVALID_ARGUMENT"), ("sums", "INVALID_ARGUMENT")):
            self.assertEqual(self.status(lambda: self.client.infer(name, floats)), f"StatusCode.{status}")
        self.assertEqual(self.status(lambda: self.client.infer("matrix", floats, model_version="9")),
                         "StatusCode.NOT_FOUND")
        self.assertEqual(self.status(lambda: self.client.unload_model("matrix")), "StatusCode.PERMISSION_DENIED")

    def test_deadlines(self):
        slow = inputs(grpc, "FP32", np.zeros((512, 512), np.float32))
        self.assertIn(self.status(lambda: self.client.infer("slow", slow, client_timeout=0.01)),
                      ("StatusCode.DEADLINE_EXCEEDED",))
        self.assertEqual(self.status(lambda: self.client.infer("slow", slow, timeout=1000)),
                         "StatusCode.DEADLINE_EXCEEDED")

    def test_large_and_compressed_messages(self):
        array = np.arange(3_000_000, dtype=np.float32)
        self.assertTrue(same(self.client.infer("identity_fp32", inputs(grpc, "FP32", array)).as_numpy("y"), array))
        array = np.arange(64 << 18, dtype=np.float32)
        self.assertTrue(same(self.client.infer("identity_fp32", inputs(grpc, "FP32", array)).as_numpy("y"), array))
        for algorithm in ("gzip", "deflate"):
            result = self.client.infer("identity_fp32", inputs(grpc, "FP32", array[:100_000]),
                                       compression_algorithm=algorithm)
            self.assertTrue(same(result.as_numpy("y"), array[:100_000]))

    def test_a_message_above_the_limit_is_refused(self):
        array = np.zeros(40_000_000, np.float32)
        self.assertEqual(self.status(lambda: self.client.infer("identity_fp32", inputs(grpc, "FP32", array))),
                         "StatusCode.RESOURCE_EXHAUSTED")

    def test_asynchronous_requests(self):
        results = queue.Queue()
        for number in range(40):
            given = inputs(grpc, "INT64", np.full(100, number, np.int64))
            self.client.async_infer("identity_int64", given, lambda result, error: results.put((result, error)))
        answers = [results.get(timeout=30) for _ in range(40)]
        self.assertEqual({error for _, error in answers}, {None})
        self.assertEqual({int(result.as_numpy("y")[0]) for result, _ in answers}, set(range(40)))

    def test_a_stream_answers_in_order_and_survives_errors(self):
        results = queue.Queue()
        self.client.start_stream(lambda result, error: results.put((result, error)))
        for number in range(50):
            self.client.async_stream_infer(
                "identity_int32" if number != 20 else "nobody",
                inputs(grpc, "INT32", np.full(10, number, np.int32)), request_id=str(number),
                enable_empty_final_response=True)
        for number in range(50):
            result, error = results.get(timeout=30)
            if number == 20:
                self.assertIn("nobody", str(error))
            else:
                self.assertIsNone(error)
                self.assertTrue(result.get_response().parameters["triton_final_response"].bool_param)
                self.assertEqual((result.get_response().id, int(result.as_numpy("y")[0])), (str(number), number))
        self.client.stop_stream()

    def test_statistics(self):
        self.client.infer("matrix", inputs(grpc, "FP32", np.zeros((2, 3), np.float32)))
        entry, = self.client.get_inference_statistics("matrix").model_stats
        self.assertGreaterEqual(entry.inference_stats.success.count, 1)
        self.assertGreater(entry.inference_stats.compute_infer.ns, 0)

    def test_shared_memory_and_settings(self):
        client = self.client
        self.assertEqual(len(client.get_system_shared_memory_status().regions), 0)
        self.assertEqual(len(client.get_cuda_shared_memory_status().regions), 0)
        client.unregister_system_shared_memory()
        client.unregister_cuda_shared_memory("r")
        self.assertEqual(self.status(lambda: client.register_system_shared_memory("r", "/r", 64)),
                         "StatusCode.INVALID_ARGUMENT")
        self.assertTrue(client.get_log_settings().settings["log_error"].bool_param)
        self.assertEqual(list(client.get_trace_settings("matrix").settings["trace_level"].value), ["OFF"])
        self.assertEqual(self.status(lambda: client.update_trace_settings(settings={"trace_rate": "7"})),
                         "StatusCode.INVALID_ARGUMENT")
        self.assertEqual(self.status(lambda: client.update_log_settings({"log_verbose_level": 3})),
                         "StatusCode.INVALID_ARGUMENT")

    def test_the_second_port_takes_it_as_well(self):
        with grpc.InferenceServerClient(self.serving.second) as client:
            self.assertTrue(client.is_server_ready())

    def test_the_health_service(self):
        channel = grpcio.insecure_channel(self.address)
        self.addCleanup(channel.close)
        # Its two messages are small enough to be written out: field 1, a name; field 1, a number.
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        for name in (b"", b"matrix"):
            self.assertEqual(check(b"\n" + bytes([len(name)]) + name), b"\x08\x01")
        with self.assertRaises(grpcio.RpcError) as caught:
            check(b"\n\x06nobody")
        self.assertEqual(caught.exception.code(), grpcio.StatusCode.NOT_FOUND)
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        self.assertEqual(next(iter(watch)), b"\x08\x01")
        watch.cancel()


class Asyncio(ServedCase):
    def test_everything_over_asyncio(self):
        asyncio.run(self.everything())

    async def everything(self):
        async with aio.InferenceServerClient(self.address) as client:
            self.assertTrue(await client.is_server_live())
            for datatype, array in EXTREMES.items():
                result = await client.infer(f"identity_{datatype.lower()}", inputs(aio, datatype, array))
                self.assertTrue(same(result.as_numpy("y"), array), datatype)

            async def requests():
                for number in range(20):
                    yield {"model_name": "identity_uint16", "request_id": str(number),
                           "inputs": inputs(aio, "UINT16", np.full(5, number, np.uint16))}

            seen = []
            async for result, error in client.stream_infer(requests()):
                self.assertIsNone(error)
                self.assertTrue(result.get_response().parameters["triton_final_response"].bool_param)
                seen.append((result.get_response().id, int(result.as_numpy("y")[0])))
            self.assertEqual(seen, [(str(number), number) for number in range(20)])


if __name__ == "__main__":
    unittest.main()
