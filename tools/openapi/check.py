"""Checks a running server against its own description. usage: check.py PROGRAM [--quick]

Starts PROGRAM (bin/ragate) without a key and with one, with small limits, and each time
  - validates /openapi.json against OpenAPI's own schema (openapi-spec-validator),
  - lets schemathesis send what the description allows and forbids, with a fixed seed, and looks at every status, header and body,
  - asks for vectors and scores with NVIDIA's client of KServe's protocol (tritonclient);
then, where Chromium is installed, opens /docs in it and looks at what the page loaded and showed.

Exit status 1 when anything is not as described.
"""
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

KEY = "a-key-of-the-test"
SEED = "20240613"
HERE = os.path.dirname(os.path.abspath(__file__))
# ignored_auth is for the server with a key. Not run: missing_required_header, since no header is required; use_after_free,
# ensure_resource_availability and object_level_authorization, since requests create nothing that later ones could find.
CHECKS = [
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "negative_data_rejection", "unsupported_method", "allow_header_conformance",
]
failures = []


def say(ok, what, detail=""):
    print("%s  %s%s" % ("ok  " if ok else "FAIL", what, ": " + detail if detail else ""), flush=True)
    if not ok:
        failures.append(what)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(url, key=None):
    request = urllib.request.Request(url, headers={"Authorization": "Bearer " + key} if key else {})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as e:
        return e.code, e.read()


class Server:
    """The program on a port of its own, until the end of a with block."""

    def __init__(self, program, key=None):
        self.key, self.port = key, free_port()
        self.url = "http://127.0.0.1:%d" % self.port
        env = {k: v for k, v in os.environ.items() if not k.startswith("RAGATE_") or k == "RAGATE_DATA_DIR"}
        # Small limits: the description has the server's own, so schemathesis goes up to them and beyond with little work for the models.
        env.update(RAGATE_LISTEN="127.0.0.1:%d" % self.port, RAGATE_LOG_LEVEL="error", RAGATE_MAX_ITEMS="8", RAGATE_MAX_DOCUMENTS="8")
        if key:
            env["RAGATE_API_KEY"] = "test:" + key
        self.process = subprocess.Popen([program, "serve"], env=env)

    def __enter__(self):
        for _ in range(1500):
            if self.process.poll() is not None:
                sys.exit("check: the server ended with status %d" % self.process.returncode)
            try:
                if get(self.url + "/ready")[0] == 200:
                    return self
            except OSError:
                pass
            time.sleep(0.2)
        self.process.kill()
        sys.exit("check: the server did not become ready")

    def __exit__(self, *_):
        self.process.terminate()
        status = self.process.wait(60)
        say(status == 0, "the server ends with status 0", "" if status == 0 else str(status))


def check_document(server):
    from openapi_spec_validator import validate

    status, text = get(server.url + "/openapi.json", server.key)
    try:
        assert status == 200, status
        document = json.loads(text)
        validate(document)
    except Exception as e:
        say(False, "/openapi.json is OpenAPI", str(e)[:500])
        return
    say(True, "/openapi.json is OpenAPI %s" % document["openapi"], "%d paths" % len(document["paths"]))


def check_requests(server, phases, examples, folder):
    checks = CHECKS + (["ignored_auth"] if server.key else [])
    command = [
        sys.executable, "-m", "schemathesis.cli", "--config-file", os.path.join(HERE, "schemathesis.toml"), "run", server.url + "/openapi.json",
        "--seed", SEED, "--phases", phases, "--max-examples", str(examples), "--checks", ",".join(checks), "--generation-database", "none",
        "--request-timeout", "120", "--continue-on-failure", "--warnings", "off",
    ]
    if server.key:
        command += ["--header", "Authorization: Bearer " + server.key]
    began = time.time()
    run = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    counted = re.search(r"(\d+) generated", run.stdout)
    generated = int(counted.group(1)) if counted else 0
    # A run that sends little would find little.
    ok = run.returncode == 0 and generated >= 200
    if not ok:
        print("\n".join(line[:400] for line in run.stdout.splitlines()))
    say(ok, "schemathesis%s" % (" with a key" if server.key else ""), "%d requests in %.0f s" % (generated, time.time() - began))


def check_client(server):
    import numpy
    import tritonclient.http as triton
    from tritonclient.utils import InferenceServerException

    def tensor(name, texts, column=False):
        array = numpy.array(texts, dtype=object)
        array = array.reshape(-1, 1) if column else array
        t = triton.InferInput(name, list(array.shape), "BYTES")
        t.set_data_from_numpy(array, binary_data=False)
        return t

    def run():
        headers = {"Authorization": "Bearer " + server.key} if server.key else {}
        client = triton.InferenceServerClient("127.0.0.1:%d" % server.port, network_timeout=120, connection_timeout=120)
        assert client.is_server_live() and client.is_server_ready(), "the probes want no key"
        assert client.get_server_metadata(headers=headers)["name"] == "ragate"
        assert client.is_model_ready("e5-small-v2", headers=headers)
        assert not client.is_model_ready("nobody", headers=headers)
        for name in ["e5-small-v2", "intfloat/e5-small-v2"]:
            about = client.get_model_metadata(name, "1", headers=headers)
            assert about["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}], about
            assert about["outputs"] == [{"name": "embedding", "datatype": "FP32", "shape": [-1, 384]}], about
            for column in [False, True]:
                for outputs in [None, [triton.InferRequestedOutput("embedding", binary_data=False)], [triton.InferRequestedOutput("embedding")]]:
                    result = client.infer(name, [tensor("text", ["hello", "naïve 日本"], column)], outputs=outputs, request_id="7", headers=headers)
                    vectors = result.as_numpy("embedding")
                    assert vectors.shape == (2, 384) and vectors.dtype == numpy.float32, (vectors.shape, vectors.dtype)
                    assert abs(numpy.linalg.norm(vectors, axis=1) - 1).max() < 1e-3
                    assert result.get_response()["id"] == "7"
        result = client.infer("e5-small-v2", [tensor("text", ["hello"])], model_version="1", headers=headers, parameters={"dimensions": 8, "input_type": "query"})
        assert result.as_numpy("embedding").shape == (1, 8)
        inputs = [tensor("query", ["what is the capital of france"]), tensor("documents", ["Bananas are rich in potassium.", "Paris is the capital of France."])]
        scores = client.infer("ms-marco-MiniLM-L-12-v2", inputs, headers=headers).as_numpy("score")
        assert scores.shape == (2,) and scores[0] < 0.1 < 0.9 < scores[1], scores
        binary = triton.InferInput("text", [1], "BYTES")
        binary.set_data_from_numpy(numpy.array(["hello"], dtype=object))
        for bad, word in [(binary, "binary_data=False"), (tensor("input", ["a"]), "takes `text`")]:
            try:
                client.infer("e5-small-v2", [bad], headers=dict(headers))  # the client writes into what it is given
                raise AssertionError("an answer to what should be refused: " + word)
            except InferenceServerException as e:
                assert word in str(e), e
        if server.key:
            try:
                client.infer("e5-small-v2", [tensor("text", ["a"])])
                raise AssertionError("an answer without a key")
            except InferenceServerException as e:
                assert "key" in str(e), e
        client.close()

    try:
        run()
    except Exception as e:
        say(False, "tritonclient", "%s: %s" % (type(e).__name__, e))
        return
    say(True, "tritonclient gets vectors and scores%s" % (" with a key" if server.key else ""))


def check_page(server, folder):
    browser = next((b for b in map(shutil.which, ["chromium", "chromium-browser", "google-chrome", "chrome"]) if b), None)
    if not browser:
        print("--    no Chromium here: the page was not opened in a browser")
        return
    # Names are not resolved, and the page's policy turns every address that is not the server's into a complaint in the console.
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--no-first-run", "--no-proxy-server", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--virtual-time-budget=10000",
        "--user-data-dir=" + os.path.join(folder, "profile"), "--enable-logging=stderr", "--dump-dom", server.url + "/docs",
    ]
    try:
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=180)
    except subprocess.TimeoutExpired:
        say(False, "/docs in a browser", "it did not end")
        return
    paths = json.loads(get(server.url + "/openapi.json", server.key)[1])["paths"]
    operations, sections = sum(len(item) for item in paths.values()), run.stdout.count('class="operation"')
    say(sections == operations, "/docs shows every operation", "%d of %d" % (sections, operations))
    complaints = [line for line in run.stderr.splitlines() if "CONSOLE" in line]
    say(not complaints, "/docs loads and does nothing that its policy forbids", "; ".join(complaints)[:300])


def main():
    program, quick = os.path.abspath(sys.argv[1]), "--quick" in sys.argv[2:]
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = "127.0.0.1"  # the server is on this machine, whatever proxy leads out of it
    with tempfile.TemporaryDirectory() as folder:
        with Server(program) as server:
            check_document(server)
            check_client(server)
            check_page(server, folder)
            check_requests(server, "examples,coverage,fuzzing", 2 if quick else 12, folder)
        with Server(program, KEY) as server:
            say(get(server.url + "/openapi.json")[0] == 401, "/openapi.json wants the key")
            say(get(server.url + "/docs")[0] == 200, "/docs does not")
            check_document(server)
            check_client(server)
            check_requests(server, "examples,fuzzing", 1 if quick else 3, folder)
    if failures:
        sys.exit("check: not as described: " + "; ".join(failures))


main()
