package server

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

const chained = `before
Traceback (most recent call last):
  File "/usr/lib/python3.11/urllib/request.py", line 1348, in do_open
    h.request(req.get_method(), req.selector, req.data, headers,
  File "/usr/lib/python3.11/http/client.py", line 1294, in request
    self._send_request(method, url, body, headers, encode_chunked)
  File "/usr/lib/python3.11/socket.py", line 962, in getaddrinfo
    for res in _socket.getaddrinfo(host, port, family, type, proto, flags):
               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
socket.gaierror: [Errno -3] Temporary failure in name resolution

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/run/program/main.py", line 3, in <module>
    f()
  File "/mnt/data/lib/python3.11/mine.py", line 2, in f
    return urlopen(url)
           ^^^^^^^^^^^^
  File "/usr/lib/python3.11/urllib/request.py", line 216, in urlopen
    return opener.open(url, data, timeout)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "<frozen importlib._bootstrap>", line 1, in open
  [Previous line repeated 3 more times]
  File "/usr/lib/python3.11/urllib/request.py", line 519, in open
    response = self._open(req, data)
urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>
`

// TestTracebacksAreShort: a small answer has few frames of Python's own library. The program's own
// frames, every exception and the rest of the text stay, and the whole can be read.
func TestTracebacksAreShort(t *testing.T) {
	want := `before
Traceback (most recent call last):
  … 3 frames of Python's own library
socket.gaierror: [Errno -3] Temporary failure in name resolution

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/run/program/main.py", line 3, in <module>
    f()
  File "/mnt/data/lib/python3.11/mine.py", line 2, in f
    return urlopen(url)
           ^^^^^^^^^^^^
  … 3 frames of Python's own library
urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>
`
	res := sandboxmcp.Result{RequestID: "r", Language: sandboxmcp.Python, Stderr: chained, Stdout: "out"}
	room := func() int { return 16_000 }
	stdout, stderr, stdoutURI, stderrURI := smallStreams(res, room)
	if stderr != want || stdout != "out" {
		t.Errorf("got %s, want %s", stderr, want)
	}
	if stderrURI != "run://r/stderr" || stdoutURI != "" {
		t.Errorf("got the uris %q and %q, want that of stderr alone", stdoutURI, stderrURI)
	}
	if _, got, _, uri := shownStreams(res, room); got != chained || uri != "" {
		t.Errorf("in full: got %s, want all of it", got)
	}
	res.Language = sandboxmcp.Shell
	if _, got, _, _ := smallStreams(res, room); got != chained {
		t.Errorf("a shell program: got %s, want all of it", got)
	}
	for _, same := range []string{
		"", "no traceback\n  File \"/usr/lib/python3.11/a.py\", line 1\n",
		"Traceback (most recent call last):\n  File \"/usr/lib/python3.11/json/__init__.py\", line 346, in loads\n    return _default_decoder.decode(s)\n  File \"/usr/lib/python3.11/json/decoder.py\", line 337, in decode\n    x\njson.decoder.JSONDecodeError: Expecting value\n",
		"Traceback (most recent call last):\n" + strings.Repeat("  File \"/opt/x/lib/python3.11/site-packages/pandas/a.py\", line 1, in f\n    g()\n", 5) + "KeyError: 'x'",
	} {
		if got := withoutLibrary(same); got != same {
			t.Errorf("got %q, want it as it was: %q", got, same)
		}
	}
}
