package packages

import "testing"

func TestReleases(t *testing.T) {
	for _, c := range []struct {
		version, specifiers string
		fits, known         bool
	}{
		{"1.0", "", true, true},
		{"1.0", "==1", true, true},
		{"1.0", "==1.0.0", true, true},
		{"1.10", ">1.9,<2", true, true},
		{"1.10", ">1.9,<1.10", false, true},
		{"1.10", "!=1.10", false, true},
		{"2", ">=1, <=2", true, true},
		{"1.0.post1", ">=1.0", true, true},
		{"1.0.post1", ">1.0", false, false},
		{"1.0", "==1.*", false, false},
		{"1.0", "~=1.0", false, false},
		{"1.0", "==1.0rc1", false, false},
		{"1.0", "===1.0", false, false},
		{"0", ">=0", true, true},
	} {
		r, ok := parseRelease(c.version)
		if !ok {
			t.Fatalf("%s is not parsed", c.version)
		}
		if fits, known := r.meets(c.specifiers); fits != c.fits || known != c.known {
			t.Errorf("%s %s: got %v, %v", c.version, c.specifiers, fits, known)
		}
	}
	for _, s := range []string{"", "1!2", "1.0+x", "1.0rc1", "v1", "1.0.dev1", "1..2", "99999999999"} {
		if r, ok := parseRelease(s); ok {
			t.Errorf("%q: got %v", s, r)
		}
	}
}

func TestRequiredPython(t *testing.T) {
	for specifiers, want := range map[string][2]bool{
		">=3.8": {true, true}, ">=3.12": {false, true}, ">=3.11": {true, true}, "<3.11": {false, true}, "<3.12,>=3": {true, true}, "<4": {true, true}, "!=3.0.*,!=3.1.*,>=2.7": {true, true}, "!=3.11.*": {false, true},
		">=2.7, !=3.0.*": {true, true}, "!=3.*": {false, true}, ">=3.11.2": {false, false}, "<=3.11": {false, false}, ">3.11": {false, false}, "<=3.12": {true, true}, ">3.10": {true, true}, "==3.*": {false, false}, "~=3.8": {false, false}, ">=3.6.2": {true, true},
		"==3.11": {false, false}, ">=3.11.*": {false, false},
	} {
		if fits, known := pythonMeets("cp311", specifiers); fits != want[0] || known != want[1] {
			t.Errorf("%s: got %v, %v, want %v", specifiers, fits, known, want)
		}
	}
	if _, known := pythonMeets("pp310", ">=3"); known {
		t.Error("PyPy is taken for CPython")
	}
}
