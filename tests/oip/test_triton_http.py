"""NVIDIA's HTTP clients, synchronous and asyncio."""

import asyncio
import json
import unittest
import urllib.request

import numpy as np
import tritonclient.http as http
import tritonclient.http.aio as aio
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from serving import EXTREMES, ServedCase, same


def inputs(api, datatype, array, binary=True):
    given = api.InferInput("x", list(array.shape), datatype)
    given.set_data_from_numpy(array, binary_data=binary)
    return [given]


class Synchronous(ServedCase):
    def setUp(self):
        self.client = http.InferenceServerClient(self.address, concurrency=4)
        self.addCleanup(self.client.close)

    def test_server_and_models_are_described(self):
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())
        self.assertTrue(self.client.is_model_ready("identity_fp32"))
        self.assertTrue(self.client.is_model_ready("identity_fp32", "1"))
        self.assertFalse(self.client.is_model_ready("nobody"))
        server = self.client.get_server_metadata()
        self.assertEqual(server["name"], "gpux")
        self.assertIn("binary_tensor_data", server["extensions"])
        model = self.client.get_model_metadata("matrix")
        self.assertEqual(model["versions"], ["1"])
        self.assertEqual(model["inputs"], [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}])
        self.assertEqual(self.client.get_model_metadata("text")["versions"], ["3"])
        self.assertEqual(self.client.get_model_metadata("text")["inputs"][0]["datatype"], "BYTES")
        config = self.client.get_model_config("matrix", "1.2.0")
        self.assertEqual(config["max_batch_size"], 0)
        self.assertEqual(config["input"][0]["data_type"], "TYPE_FP32")
        self.assertEqual(config["default_model_filename"], "model.onnx")
        self.assertEqual([(group["kind"], group["count"]) for group in config["instance_group"]], [("KIND_CPU", 1)])

    def test_every_datatype_at_its_extremes_in_binary(self):
        for datatype, array in EXTREMES.items():
            with self.subTest(datatype):
                self.assertEqual(np_to_triton_dtype(array.dtype), datatype)
                result = self.client.infer(f"identity_{datatype.lower()}", inputs(http, datatype, array))
                self.assertTrue(same(result.as_numpy("y"), array), result.as_numpy("y"))

    def test_every_datatype_at_its_extremes_in_json(self):
        for datatype, array in EXTREMES.items():
            if datatype == "FP16":
                continue
            with self.subTest(datatype):
                asked = [http.InferRequestedOutput("y", binary_data=False)]
                given = inputs(http, datatype, array, binary=False)
                result = self.client.infer(f"identity_{datatype.lower()}", given, outputs=asked)
                self.assertIsNone(result.get_output("y").get("parameters"))
                self.assertTrue(same(result.as_numpy("y"), array), result.as_numpy("y"))

    def test_bfloat16_in_binary(self):
        array = np.array([1.0, -2.5, 3.0e38], np.float32)
        result = self.client.infer("identity_bf16", inputs(http, "BF16", array))
        np.testing.assert_allclose(result.as_numpy("y"), array, rtol=1e-2)
        self.assertEqual(result.get_output("y")["datatype"], "BF16")

    def test_nan_and_infinity(self):
        array = np.array([np.nan, 1.0, np.inf, -np.inf], np.float32)
        # As JSON they are literals of NVIDIA's client, which is no JSON, and are answered with literals.
        for binary in (True, False):
            for asked in (True, False):
                outputs = [http.InferRequestedOutput("y", binary_data=asked)]
                result = self.client.infer("identity_fp32", inputs(http, "FP32", array, binary), outputs=outputs)
                np.testing.assert_array_equal(result.as_numpy("y"), array)
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [4], "data": ["NaN", 1, "Infinity", "-Infinity"]}]}
        for data, strict in ((["NaN", 1, "Infinity", "-Infinity"], True), (array.tolist(), False)):
            body["inputs"][0]["data"] = data
            call = urllib.request.Request(f"http://{self.address}/v2/models/identity_fp32/infer", json.dumps(body).encode())
            with urllib.request.urlopen(call, timeout=60) as answer:
                text = answer.read().decode()
            self.assertEqual('"NaN"' in text, strict)
            np.testing.assert_array_equal(np.array(json.loads(text)["outputs"][0]["data"], np.float32), array)

    def test_ids_versions_and_chosen_outputs(self):
        a, b = (http.InferInput(name, [2], "FP32") for name in "ab")
        a.set_data_from_numpy(np.array([1, 2], np.float32))
        b.set_data_from_numpy(np.array([10, 20], np.float32), binary_data=False)
        for version, said in (("", "1"), ("1", "1"), ("1.2.0", "1.2.0")):
            asked = [http.InferRequestedOutput("difference")]
            result = self.client.infer("sums", [a, b], model_version=version, outputs=asked, request_id="né 7")
            response = result.get_response()
            self.assertEqual((response["id"], response["model_version"]), ("né 7", said))
            self.assertEqual([output["name"] for output in response["outputs"]], ["difference"])
            np.testing.assert_array_equal(result.as_numpy("difference"), [-9, -18])

    def test_compression_both_ways(self):
        array = np.zeros(100_000, np.float32)
        for algorithm in ("gzip", "deflate"):
            with self.subTest(algorithm):
                result = self.client.infer(
                    "identity_fp32", inputs(http, "FP32", array), request_compression_algorithm=algorithm,
                    response_compression_algorithm=algorithm)
                self.assertTrue(same(result.as_numpy("y"), array))

    def test_a_tensor_of_64_mib_passes_with_its_head(self):
        array = np.arange(64 << 18, dtype=np.float32)
        self.assertTrue(same(self.client.infer("identity_fp32", inputs(http, "FP32", array)).as_numpy("y"), array))

    def test_texts_that_models_cannot_be_given_are_refused(self):
        for text, why in ((b"a\0b", "NUL"), (b"\xff", "UTF-8")):
            for name in ("identity_bytes", "text"):
                given = http.InferInput("x" if name == "identity_bytes" else "text", [1], "BYTES")
                given.set_data_from_numpy(np.array([text], object))
                if name == "text" and why == "NUL":
                    # It goes into no model.
                    self.assertEqual(self.client.infer(name, [given]).as_numpy("text")[0], text)
                    continue
                with self.assertRaisesRegex(InferenceServerException, why) as caught:
                    self.client.infer(name, [given])
                self.assertEqual(caught.exception.status(), "400")

    def test_asynchronous_requests(self):
        arrays = [np.full(1000, number, np.int64) for number in range(40)]
        requests = [self.client.async_infer("identity_int64", inputs(http, "INT64", array)) for array in arrays]
        for array, request in zip(arrays, requests):
            self.assertTrue(same(request.get_result().as_numpy("y"), array))

    def test_classification(self):
        given = http.InferInput("x", [2, 3], "FP32")
        given.set_data_from_numpy(np.array([[0.1, 0.7, 0.2], [5, -1, 0]], np.float32))
        asked = [http.InferRequestedOutput("y", class_count=2)]
        classes = self.client.infer("scores", [given], outputs=asked).as_numpy("y")
        self.assertEqual(classes.shape, (2, 2))
        self.assertEqual(classes.ravel().tolist(),
                         [b"0.700000:1:dog", b"0.200000:2:fox", b"5.000000:0:cat", b"0.000000:2:fox"])

    def test_texts_are_bytes(self):
        given = http.InferInput("text", [1], "BYTES")
        for binary in (True, False):
            given.set_data_from_numpy(np.array(["GRÜSSE"], object), binary_data=binary)
            result = self.client.infer("text", [given])
            self.assertEqual(result.as_numpy("text")[0].decode(), "grüsse")

    def test_statistics_count_what_was_done(self):
        def counts():
            entry, = self.client.get_inference_statistics("identity_uint8")["model_stats"]
            stats = entry["inference_stats"]
            return [entry["inference_count"], stats["success"]["count"], stats["fail"]["count"],
                    stats["compute_infer"]["count"]]
        before = counts()
        self.client.infer("identity_uint8", inputs(http, "UINT8", np.array([7], np.uint8)))
        with self.assertRaises(InferenceServerException):
            self.client.infer("identity_uint8", inputs(http, "INT8", np.array([7], np.int8)))
        after = counts()
        # What does not fit was no inference.
        self.assertEqual([now - then for now, then in zip(after, before)], [1, 1, 0, 1])

        def failures():
            entry, = self.client.get_inference_statistics("slow")["model_stats"]
            self.assertEqual((entry["inference_stats"]["cache_hit"]["count"], entry["response_stats"],
                              entry["memory_usage"]), (0, {}, []))
            return entry["inference_stats"]["fail"]["count"]
        before = failures()
        with self.assertRaises(InferenceServerException):
            self.client.infer("slow", inputs(http, "FP32", np.zeros((512, 512), np.float32)), timeout=1000)
        self.assertEqual(failures() - before, 1)
        names = {entry["name"] for entry in self.client.get_inference_statistics()["model_stats"]}
        self.assertIn("matrix", names)

    def test_the_repository_is_shown_and_closed(self):
        index = {entry["name"]: entry["state"] for entry in self.client.get_model_repository_index()}
        self.assertEqual(index["matrix"], "READY")
        for call in (self.client.load_model, self.client.unload_model):
            with self.assertRaisesRegex(InferenceServerException, "--model-control"):
                call("matrix")
        self.assertTrue(self.client.is_model_ready("matrix"))

    def test_errors_say_what_is_wrong(self):
        floats = np.array([1, 2], np.float32)
        for status, name, given in (
            ("404", "nobody", inputs(http, "FP32", floats)),
            ("400", "identity_int8", inputs(http, "FP32", floats)),
            ("400", "matrix", inputs(http, "FP32", floats)),
            ("400", "sums", inputs(http, "FP32", floats)),
        ):
            with self.subTest(name), self.assertRaises(InferenceServerException) as caught:
                self.client.infer(name, given)
            self.assertEqual(caught.exception.status(), status)
            self.assertTrue(caught.exception.message())

    def test_shared_memory_and_settings(self):
        client = self.client
        self.assertEqual((client.get_system_shared_memory_status(), client.get_cuda_shared_memory_status()), ([], []))
        client.unregister_system_shared_memory()
        client.unregister_cuda_shared_memory("r")
        self.assertEqual(client.get_log_settings()["log_file"], "")
        self.assertEqual(client.get_trace_settings("matrix")["trace_level"], ["OFF"])
        for refused in (
            lambda: client.register_system_shared_memory("r", "/r", 64),
            lambda: client.update_log_settings({"log_verbose_level": 3}),
            lambda: client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]}),
        ):
            with self.assertRaises(InferenceServerException) as caught:
                refused()
            self.assertEqual(caught.exception.status(), "400")
            self.assertTrue(caught.exception.message())

    def test_a_timeout_is_in_microseconds(self):
        array = np.zeros((512, 512), np.float32)
        with self.assertRaises(InferenceServerException) as caught:
            self.client.infer("slow", inputs(http, "FP32", array), timeout=1000)
        self.assertEqual(caught.exception.status(), "503")


class Asyncio(ServedCase):
    def test_everything_over_asyncio(self):
        asyncio.run(self.everything())

    async def everything(self):
        async with aio.InferenceServerClient(self.address) as client:
            self.assertTrue(await client.is_server_live() and await client.is_server_ready())
            self.assertTrue(await client.is_model_ready("matrix"))
            self.assertEqual((await client.get_model_metadata("matrix"))["platform"], "onnx_onnxv1")
            for datatype, array in EXTREMES.items():
                for binary in (True, False):
                    if datatype == "FP16" and not binary:
                        continue
                    asked = [aio.InferRequestedOutput("y", binary_data=binary)]
                    given = inputs(aio, datatype, array, binary)
                    result = await client.infer(f"identity_{datatype.lower()}", given, outputs=asked)
                    self.assertTrue(same(result.as_numpy("y"), array), datatype)
            arrays = [np.full(10, number, np.float64) for number in range(30)]
            calls = [client.infer("identity_fp64", inputs(aio, "FP64", array)) for array in arrays]
            for array, result in zip(arrays, await asyncio.gather(*calls)):
                self.assertTrue(same(result.as_numpy("y"), array))
            with self.assertRaises(InferenceServerException):
                await client.infer("nobody", inputs(aio, "FP32", np.zeros(1, np.float32)))


class Controlled(ServedCase):
    ARGUMENTS = ("--model-control",)

    def test_what_is_unloaded_can_be_loaded_again(self):
        client = http.InferenceServerClient(self.address)
        self.addCleanup(client.close)
        client.unload_model("matrix")
        self.assertFalse(client.is_model_ready("matrix"))
        self.assertTrue(client.is_server_ready())
        with self.assertRaises(InferenceServerException) as caught:
            client.infer("matrix", inputs(http, "FP32", np.zeros((1, 3), np.float32)))
        self.assertEqual(caught.exception.status(), "404")
        client.load_model("matrix")
        self.assertTrue(client.is_model_ready("matrix"))
        with self.assertRaisesRegex(InferenceServerException, "not supported"):
            client.load_model("matrix", config="{}")
        with self.assertRaises(InferenceServerException):
            client.load_model("nobody")


if __name__ == "__main__":
    unittest.main()
