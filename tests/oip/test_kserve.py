"""KServe's own client, REST and gRPC."""

import asyncio
import unittest

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

from serving import EXTREMES, ServedCase, same


def request(datatype, array, binary, **more):
    given = InferInput("x", list(array.shape), datatype)
    given.set_data_from_numpy(array, binary_data=binary)
    return InferRequest(f"identity_{datatype.lower()}", [given], **more)


class Clients(ServedCase):
    def test_rest(self):
        asyncio.run(self.rest())

    async def rest(self):
        client = InferenceRESTClient(RESTConfig(protocol="v2"))
        base = f"http://{self.address}"
        self.assertTrue(await client.is_server_live(base))
        self.assertTrue(await client.is_server_ready(base))
        self.assertTrue(await client.is_model_ready(base, "matrix"))
        for datatype, array in EXTREMES.items():
            for binary in (True, False):
                if datatype == "FP16" and not binary:
                    continue
                with self.subTest(datatype, binary=binary):
                    asked = [RequestedOutput("y", {"binary_data": binary})]
                    asked = request(datatype, array, binary, request_id="7", request_outputs=asked)
                    response = await client.infer(base, asked, model_name=asked.model_name)
                    self.assertEqual((response.id, response.model_name), ("7", asked.model_name))
                    self.assertTrue(same(response.outputs[0].as_numpy(), array), response.outputs[0].as_numpy())
        await client.close()

    def test_grpc(self):
        asyncio.run(self.grpc())

    async def grpc(self):
        client = InferenceGRPCClient(self.serving.second)
        self.assertTrue(await client.is_server_live())
        self.assertTrue(await client.is_server_ready())
        self.assertTrue(await client.is_model_ready("matrix"))
        for datatype, array in EXTREMES.items():
            for binary in (True, False):
                if datatype == "FP16" and not binary:
                    continue
                with self.subTest(datatype, binary=binary):
                    response = await client.infer(request(datatype, array, binary))
                    self.assertTrue(same(response.outputs[0].as_numpy(), array), response.outputs[0].as_numpy())
        await client.close()


if __name__ == "__main__":
    unittest.main()
