package sign

import "testing"

// The vector is the example of the DSSE specification, version 1.0.
func TestPreAuthIsThatOfTheSpecification(t *testing.T) {
	got := string(preAuth("http://example.com/HelloWorld", []byte("hello world")))
	want := "DSSEv1 29 http://example.com/HelloWorld 11 hello world"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
