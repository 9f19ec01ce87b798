package gate

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
)

// Package is one or more packages of a language, in all their versions.
type Package struct {
	Language sandboxmcp.Language
	Names    string // normalized, sorted, with commas between them
}

// String returns a text such as python:requests or python:idna,requests.
func (p Package) String() string { return string(p.Language) + ":" + p.Names }

// Covers reports whether every one of the other packages is among these.
func (p Package) Covers(other Package) bool {
	if p.Language != other.Language {
		return false
	}
	names := strings.Split(p.Names, ",")
	for name := range strings.SplitSeq(other.Names, ",") {
		if !slices.Contains(names, name) {
			return false
		}
	}
	return true
}

// MaxPackages is how many packages one question may name.
const MaxPackages = 200

var (
	packageForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(@[A-Za-z0-9~_-][A-Za-z0-9._~-]*/)?[A-Za-z0-9_][A-Za-z0-9._~-]{0,213}$`)
	})
	nameSeparator = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[-_.]+`) })
)

// ParsePackage parses a text such as python:requests, node:@types/node or python:idna,requests.
func ParsePackage(text string) (Package, error) {
	language, list, _ := strings.Cut(text, ":")
	p := Package{Language: sandboxmcp.Language(language)}
	names := strings.Split(list, ",")
	known := p.Language == sandboxmcp.Python || p.Language == sandboxmcp.Node
	for i, name := range names {
		if !known || len(names) > MaxPackages || !packageForm().MatchString(name) || p.Language == sandboxmcp.Python && strings.Contains(name, "/") {
			return p, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s is not of the form python:NAME or node:NAME, with at most %d names", sandboxmcp.Quote(text), MaxPackages).
				WithHint("write it as python:requests or python:idna,requests")
		}
		if p.Language == sandboxmcp.Python {
			names[i] = strings.ToLower(nameSeparator().ReplaceAllString(name, "-"))
		}
	}
	slices.Sort(names)
	p.Names = strings.Join(slices.Compact(names), ",")
	return p, nil
}

// Packages is the kind of the packages that may be installed.
func Packages() Kind[Package] {
	return Kind[Package]{
		Name: "package", Member: "package",
		Field: func(sub *sandboxmcp.Subject) *string { return &sub.Package },
		Parse: ParsePackage,
		Asked: "package_request", Opened: "package_approved", Denied: "package_denied", Refused: sandboxmcp.CodePackageRejected,
		Noun: "package", Closed: "no package may be installed", Command: "packages", Retry: "run the code again", Setting: "packages_allow",
		Grant: func(text string) string { return "packages approve " + sandboxmcp.ShellQuote(text) },
		Off:   packagesOff, OffHow: "packages are not approved by persons here (setting packages); only those of packages_allow are installed",
	}
}

func packagesOff() error {
	return sandboxmcp.Errorf(sandboxmcp.CodePackageRejected, "packages are not approved by persons here: the settings decide").
		WithHint("an operator sets packages to ask (SANDBOXMCP_PACKAGES), or adds to packages_allow")
}
