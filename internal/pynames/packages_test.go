package pynames_test

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/pynames"
)

func TestPackage(t *testing.T) {
	for module, want := range map[string]string{
		"sklearn": "scikit-learn", "cv2": "opencv-python-headless", "PIL": "pillow", "Crypto": "pycryptodome", "MySQLdb": "mysqlclient", "pkg-resources": "setuptools",
		"yaml": "PyYAML", "numpy": "", "": "",
	} {
		if got := pynames.Package(module); got != want {
			t.Errorf("%q: got %q, want %q", module, got, want)
		}
	}
}
