package host

import (
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// noSettings is a file that is not there. npm takes the word of .npmrc in its directory for where the file of global settings is, and
// prints the keys of that file that it does not know. .npmrc may be that of a program in a sandbox. A flag alone or a variable alone does
// not come before it: npm from version 7 keeps the first of the three as the default (tried). Of two, it uses the variable.
const noSettings = "/nonexistent/npmrc"

// maxPackage bounds the bytes of a package.json.
const maxPackage = 1 << 20

// settingsOfNpm returns variables for a program that is npm. They come before the file .npmrc of its directory, which a program in a
// sandbox may have written. Before version 7, that file could name code that npm loads; later versions warn of the variable.
func settingsOfNpm(program string) []string {
	text, err := plainfile.Read(filepath.Join(filepath.Dir(filepath.Dir(program)), "package.json"), maxPackage)
	if err != nil {
		return nil
	}
	var about struct{ Name, Version string }
	if json.Unmarshal(text, &about) != nil || about.Name != "npm" {
		return nil
	}
	major, _, _ := strings.Cut(about.Version, ".")
	if n, err := strconv.Atoi(major); err == nil && n >= 7 {
		return nil
	}
	return []string{"NPM_CONFIG_ONLOAD_SCRIPT=null"}
}
