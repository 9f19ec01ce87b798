package sandboxmcp

import (
	"bytes"
	"encoding/json"
)

// plainResult is a Result with the default encoding.
type plainResult Result

// runningResult is the encoding of a result that has neither succeeded nor failed yet. Its own
// fields hide those of plainResult and keep their order.
type runningResult struct {
	RequestID RequestID `json:"request_id"`
	Success   *bool     `json:"success"`
	ExitCode  *int      `json:"exit_code"`
	plainResult
}

// MarshalJSON encodes success and exit_code of a result with StatusRunning as null.
func (r Result) MarshalJSON() ([]byte, error) {
	var v any = plainResult(r)
	if r.Status == StatusRunning {
		v = runningResult{RequestID: r.RequestID, plainResult: plainResult(r)}
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false) // the encoder that calls this escapes them if it does
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}
