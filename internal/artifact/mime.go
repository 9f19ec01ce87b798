package artifact

import (
	"mime"
	"path"
	"strings"

	"github.com/gabriel-vasile/mimetype"
)

// textTypes maps extensions to the types of texts. It is used if the content is any kind of
// text: a program that contains HTML is not a page.
var textTypes = map[string]string{
	".txt": "text/plain", ".log": "text/plain", ".md": "text/markdown", ".markdown": "text/markdown", ".rst": "text/x-rst",
	".py": "text/x-python", ".js": "text/javascript", ".mjs": "text/javascript", ".cjs": "text/javascript", ".ts": "text/x-typescript",
	".sh": "text/x-shellscript", ".c": "text/x-c", ".h": "text/x-c", ".go": "text/x-go", ".rs": "text/x-rust", ".java": "text/x-java", ".r": "text/x-r", ".sql": "application/sql",
	".csv": "text/csv", ".tsv": "text/tab-separated-values", ".json": "application/json", ".jsonl": "application/x-ndjson", ".ndjson": "application/x-ndjson",
	".ipynb": "application/x-ipynb+json", ".geojson": "application/geo+json", ".yaml": "application/yaml", ".yml": "application/yaml", ".toml": "application/toml",
	".xml": "application/xml", ".svg": "image/svg+xml", ".html": "text/html", ".htm": "text/html", ".css": "text/css", ".tex": "text/x-tex",
}

// binaryTypes maps extensions to types. It is used if the type of the content is not
// recognized.
var binaryTypes = map[string]string{
	".npy": "application/x-npy", ".npz": "application/x-npz", ".pkl": "application/x-pickle", ".pickle": "application/x-pickle",
	".parquet": "application/vnd.apache.parquet", ".feather": "application/vnd.apache.arrow.file", ".arrow": "application/vnd.apache.arrow.file",
	".h5": "application/x-hdf5", ".hdf5": "application/x-hdf5", ".onnx": "application/octet-stream", ".safetensors": "application/octet-stream",
}

// MIMEType returns the type of a file. The content decides; the extension refines it and
// never contradicts it: an HTML page with the name x.png is text/html.
func MIMEType(name string, data []byte) string {
	ext := strings.ToLower(path.Ext(name))
	if len(data) == 0 {
		if t, ok := textTypes[ext]; ok {
			return withCharset(t)
		}
		return "application/octet-stream"
	}
	found := mimetype.Detect(data)
	if isText(found) {
		if t, ok := textTypes[ext]; ok {
			if strings.HasSuffix(found.String(), "charset=utf-8") || strings.HasPrefix(t, "text/") && !strings.Contains(found.String(), "charset=") {
				return withCharset(t)
			}
			return mime.FormatMediaType(t, charsetOf(found.String()))
		}
		return found.String()
	}
	if found.Is("application/octet-stream") || found.Is("application/zip") {
		if t, ok := binaryTypes[ext]; ok {
			return t
		}
	}
	return found.String()
}

func withCharset(t string) string {
	if strings.HasPrefix(t, "text/") {
		return t + "; charset=utf-8"
	}
	return t
}

func charsetOf(full string) map[string]string {
	_, params, err := mime.ParseMediaType(full)
	if err != nil {
		return nil
	}
	return params
}

// isText reports whether a type is text/plain or a refinement of it.
func isText(m *mimetype.MIME) bool {
	for ; m != nil; m = m.Parent() {
		if m.Is("text/plain") {
			return true
		}
	}
	return false
}
