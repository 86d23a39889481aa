"""An S3 server on loopback: moto's, one request at a time, so that its conditional writes are atomic.

Prints its port, makes the bucket `fleet`, and ends with its stdin.
"""

import os
import sys
import threading

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=False)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
client.create_bucket(Bucket="fleet")
print(server.server_port, flush=True)
sys.stdin.read()
os._exit(0)
