"""Requests built with MLServer's types and codecs, sent as its guides do."""

import unittest
import urllib.request

import numpy as np
from mlserver.codecs import Base64Codec, NumpyCodec, StringCodec
from mlserver.types import InferenceRequest, InferenceResponse

from serving import ROOT, ServedCase


class Codecs(ServedCase):
    ARGUMENTS = (str(ROOT / "gpux.yml"),)

    def infer(self, model, *inputs):
        body = InferenceRequest(id="7", inputs=list(inputs)).model_dump_json().encode()
        url = f"http://{self.address}/v2/models/{model}/infer"
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=60) as answer:
            response = InferenceResponse.model_validate_json(answer.read())
        self.assertEqual((response.id, response.model_name), ("7", model))
        return response.outputs[0]

    def test_arrays(self):
        array = np.array([[0.1, -2.5, 3e38], [0, 1, 2]], np.float32)
        output = self.infer("matrix", NumpyCodec.encode_input("x", array))
        np.testing.assert_array_equal(NumpyCodec.decode_output(output), array)

    def test_texts(self):
        output = self.infer("text", StringCodec.encode_input("text", ["GRÜSSE"]))
        self.assertEqual(StringCodec.decode_output(output), ["grüsse"])

    def test_files(self):
        picture = (ROOT / "models/samples/seven.png").read_bytes()
        output = self.infer("digits", Base64Codec.encode_input("image", [picture]))
        self.assertIn('"label":"seven"', StringCodec.decode_output(output)[0])


if __name__ == "__main__":
    unittest.main()
