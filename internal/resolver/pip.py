# Runs pip in this interpreter. The order on standard input has its arguments, its
# environment, and files that it needs in the working directory.
import json
import os
import runpy
import sys

OLDEST = 22, 2  # --dry-run with --report


def fetch(url):
    from urllib.request import ProxyHandler, Request, build_opener
    ask = Request(url, headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    with build_opener(ProxyHandler({})).open(ask, timeout=60) as answer:
        return answer.read()


def fetched(args):
    """Fetches the newest pip that this interpreter can run. A wheel of pip runs as it is."""
    from urllib.parse import urljoin
    page = args[args.index("--index-url") + 1].rstrip("/") + "/pip/"
    for file in reversed(json.loads(fetch(page))["files"]):
        name, wants = file["filename"], file.get("requires-python") or ""
        version = name.split("-")[1]
        if name.endswith("-py3-none-any.whl") and version.replace(".", "").isdigit() and suits(wants):
            with open("/tmp/" + name, "wb") as wheel:
                wheel.write(fetch(urljoin(page, file["url"])))
            return "/tmp/" + name
    raise SystemExit("no pip can be had for this Python")


def suits(wants):
    least = wants.partition(">=")[2].partition(",")[0].strip()
    return not least or tuple(int(n) for n in least.split(".")[:2] if n.isdigit()) <= sys.version_info[:2]


def has_pip():
    try:
        import pip
        return tuple(int(n) for n in pip.__version__.split(".")[:2]) >= OLDEST
    except (ImportError, ValueError):
        return False


STARTS = "subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.system"


def start_nothing(event, args):
    """Refuses other programs. pip starts them to build a package, or to fetch it from a repository, if the metadata of
    another package names its URL. Choosing wheels needs none."""
    if event in STARTS:
        raise PermissionError("a package that has to be built is not installed")


def main():
    order = json.load(sys.stdin)
    for name, text in order["files"].items():
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
    for name in list(os.environ):
        if name.upper().startswith("PIP_"):
            del os.environ[name]
    os.environ.update({"TMPDIR": os.getcwd(), **order["env"]})
    sys.path[:] = [place for place in sys.path if place not in ("", os.getcwd())]
    if not has_pip():
        sys.modules.pop("pip", None)
        sys.path.insert(0, fetched(order["args"]))
    if sys.version_info >= (3, 8):
        sys.addaudithook(start_nothing)
    sys.argv = ["pip", *order["args"]]
    runpy.run_module("pip", run_name="__main__", alter_sys=True)


main()
