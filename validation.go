package sandboxmcp

// CodeCheck is code that is to be checked without being run.
type CodeCheck struct {
	Code     string   `json:"code"`               // UTF-8, at most max_code_bytes
	Language Language `json:"language,omitempty"` // empty: python
	NoFix    bool     `json:"no_fix,omitempty"`   // do not correct what can be corrected
}

// Verdict is the result of checking code.
type Verdict string

// The verdicts.
const (
	VerdictPass   Verdict = "pass"
	VerdictFixed  Verdict = "fixed"  // FixedCode can be run in place of the original
	VerdictReject Verdict = "reject" // it cannot be parsed, or has a dangerous pattern and reject_dangerous is on
)

// Severity says how bad an issue is. Only an error makes code invalid.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
	SeverityInfo    Severity = "info"
)

// Issue is something that was found in code.
type Issue struct {
	Line     int      `json:"line"` // from 1; 0: not known
	Col      int      `json:"col"`  // from 1, in characters; 0: not known
	Message  string   `json:"message"`
	Severity Severity `json:"severity"`
	Rule     string   `json:"rule"` // "syntax", or the name of a dangerous pattern
}

// CodeReport says what a check found. Lines are those of the original code.
type CodeReport struct {
	Valid        bool     `json:"valid"`
	Verdict      Verdict  `json:"verdict"`
	Issues       []Issue  `json:"issues"`
	FixesApplied []string `json:"fixes_applied"`
	OriginalCode string   `json:"original_code"`
	FixedCode    string   `json:"fixed_code"` // the original if nothing was corrected
	Language     Language `json:"language"`
}
