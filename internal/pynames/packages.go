package pynames

import "strings"

// packages names the package of each module whose package has another name. Keys are in lower
// case.
var packages = map[string]string{
	"attr": "attrs", "bio": "biopython", "bs4": "beautifulsoup4", "crypto": "pycryptodome", "cryptodome": "pycryptodomex", "cv2": "opencv-python-headless",
	"dateutil": "python-dateutil", "discord": "discord.py", "dns": "dnspython", "docx": "python-docx", "dotenv": "python-dotenv", "fitz": "PyMuPDF",
	"git": "GitPython", "jose": "python-jose", "jwt": "PyJWT", "kafka": "kafka-python", "levenshtein": "python-Levenshtein", "magic": "python-magic",
	"multipart": "python-multipart", "mysqldb": "mysqlclient", "nacl": "PyNaCl", "openssl": "pyOpenSSL", "osgeo": "GDAL", "pil": "pillow",
	"pkg_resources": "setuptools", "pptx": "python-pptx", "psycopg2": "psycopg2-binary", "serial": "pyserial", "skimage": "scikit-image",
	"sklearn": "scikit-learn", "slugify": "python-slugify", "socketio": "python-socketio", "telegram": "python-telegram-bot", "umap": "umap-learn",
	"usb": "pyusb", "websocket": "websocket-client", "yaml": "PyYAML", "zmq": "pyzmq",
}

// Package returns the name of the package that a module comes with; empty: no other name than the
// module's is known.
func Package(module string) string {
	return packages[strings.ReplaceAll(strings.ToLower(module), "-", "_")]
}
