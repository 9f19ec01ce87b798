package sandboxmcp_test

import (
	"errors"
	"fmt"

	"github.com/sandboxmcp/sandboxmcp"
)

// An error of the product has a code of a closed list, and a hint for its reader.
func ExampleError() {
	_, err := sandboxmcp.ParseLanguage("ruby")

	if failure, ok := errors.AsType[*sandboxmcp.Error](err); ok {
		fmt.Println(failure.Code)
	}
	fmt.Println(errors.Is(err, &sandboxmcp.Error{Code: sandboxmcp.CodeUnsupportedLanguage}))
	// Output:
	// unsupported_language
	// true
}

// A secret is printed only if its text is asked for.
func ExampleSecret() {
	token := sandboxmcp.NewSecret("correct-horse")
	fmt.Printf("%v %d\n", token, len(token.Reveal()))
	// Output:
	// ***REDACTED*** 13
}

// Names of languages are accepted in any case, and under common other names.
func ExampleParseLanguage() {
	for _, name := range []string{"Python", "js", "bash"} {
		language, err := sandboxmcp.ParseLanguage(name)
		fmt.Println(language, err)
	}
	// Output:
	// python <nil>
	// node <nil>
	// shell <nil>
}

// A domain may be a whole level, and may have a port.
func ExampleParseDomain() {
	for _, text := range []string{"API.example.com", "*.example.com:8443", "http://example.com"} {
		domain, err := sandboxmcp.ParseDomain(text)
		fmt.Printf("%q %q\n", domain, sandboxmcp.CodeOf(err))
	}
	// Output:
	// "api.example.com" ""
	// "*.example.com:8443" ""
	// "" "invalid_argument"
}
