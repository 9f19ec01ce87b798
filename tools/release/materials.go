package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// materials writes the bill of materials of a program: the Go modules that its linker recorded in
// it, as CycloneDX.
func (r *release) materials(t target, p program) error {
	sum := sha256.Sum256(p.data)
	bom := cyclonedx.NewBOM()
	bom.SerialNumber = serial(sum)
	main := component(cyclonedx.ComponentTypeApplication, p.info.Main.Path, r.version)
	main.Description = about
	main.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}
	main.Licenses = &cyclonedx.Licenses{{License: &cyclonedx.License{ID: license}}}
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: r.when.Format(time.RFC3339),
		Component: &main,
		Properties: &[]cyclonedx.Property{
			{Name: "go:os", Value: t.os},
			{Name: "go:arch", Value: t.arch},
		},
	}
	components := []cyclonedx.Component{component(cyclonedx.ComponentTypeLibrary, "std", strings.TrimPrefix(p.info.GoVersion, "go"))}
	refs := []string{components[0].BOMRef}
	for _, m := range p.info.Deps {
		c := module(m)
		components = append(components, c)
		refs = append(refs, c.BOMRef)
	}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	return writeFile(r.file(t, ".cdx.json"), func(w io.Writer) error {
		return cyclonedx.NewBOMEncoder(w, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	})
}

// module returns a dependency as a component, with the sum that go.sum has of it.
func module(m *debug.Module) cyclonedx.Component {
	if m.Replace != nil {
		m = m.Replace
	}
	c := component(cyclonedx.ComponentTypeLibrary, m.Path, m.Version)
	if m.Sum != "" {
		c.Properties = &[]cyclonedx.Property{{Name: "go:sum", Value: m.Sum}}
	}
	return c
}

func component(kind cyclonedx.ComponentType, path, version string) cyclonedx.Component {
	purl := "pkg:golang/" + path + "@" + url.PathEscape(version)
	return cyclonedx.Component{Type: kind, BOMRef: purl, Name: path, Version: version, PackageURL: purl}
}

// serial returns a UUID of version 8 that follows from a digest.
func serial(sum [sha256.Size]byte) string {
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
