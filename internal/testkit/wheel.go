package testkit

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Wheel is a Python package that a test makes by hand.
type Wheel struct {
	Name, Version string            // as they stand in a file name
	Requires      []string          // such as "other>=1"
	Files         map[string]string // by path in the package's place
}

// Write makes the wheel's file in a directory.
func (w Wheel) Write(dir string) (err error) {
	info := w.Name + "-" + w.Version + ".dist-info/"
	meta := "Metadata-Version: 2.1\nName: " + w.Name + "\nVersion: " + w.Version + "\n"
	if len(w.Requires) > 0 {
		meta += "Requires-Dist: " + strings.Join(w.Requires, "\nRequires-Dist: ") + "\n"
	}
	all := map[string]string{info + "METADATA": meta, info + "WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
	maps.Copy(all, w.Files)
	names := slices.Sorted(maps.Keys(all))
	var record strings.Builder
	for _, f := range names {
		sum := sha256.Sum256([]byte(all[f]))
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f, base64.RawURLEncoding.EncodeToString(sum[:]), len(all[f]))
	}
	all[info+"RECORD"] = record.String() + info + "RECORD,,\n"
	file, err := os.Create(filepath.Join(dir, w.Name+"-"+w.Version+"-py3-none-any.whl"))
	if err != nil {
		return err
	}
	out := zip.NewWriter(file)
	defer func() { err = errors.Join(err, out.Close(), file.Close()) }()
	for _, f := range append(names, info+"RECORD") {
		part, err := out.Create(f)
		if err == nil {
			_, err = part.Write([]byte(all[f]))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
