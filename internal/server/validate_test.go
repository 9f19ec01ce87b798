package server_test

import "testing"

func TestValidateCode(t *testing.T) {
	p := legacy(t, newFake())
	got := p.good("validate_code", map[string]any{"code": "x", "language": "shell"})
	if got["fixed_code"] != "fixed x" || got["original_code"] != "x" || got["language"] != "shell" || got["verdict"] != "fixed" {
		t.Errorf("got %v, want the fixed code", got)
	}
	if got := p.good("validate_code", map[string]any{"code": "x", "auto_fix": false}); got["fixed_code"] != "x" || got["verdict"] != "pass" {
		t.Errorf("without auto_fix: got %v, want the code as it is", got)
	}
	p.fails("invalid_argument", "validate_code", map[string]any{"language": "python"})
}
