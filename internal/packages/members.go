package packages

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Bounds of what a document of an index may consist of. Its parts take many times their bytes in
// memory, so they are read one at a time and counted.
const (
	maxListed  = 50_000        // files, or versions, of one package that are kept
	maxMembers = 4 * maxListed // parts of a list or an object
	maxKept    = 400_000       // files and versions of all packages of one gateway that are kept, each in a kilobyte
	maxFileRow = 64 << 10      // bytes that describe a wheel
	maxVersion = 1 << 20       // bytes that describe a version of npm
	maxURL     = 4 << 10       // bytes of the URL of a document or a file
	maxText    = 1000          // bytes of a text that is kept, such as why a file was yanked
)

var errMembers = fmt.Errorf("it lists more than %d", maxMembers)

// part is a value of a document: its name, if it is a member of an object, and its bytes.
type part struct {
	name string
	raw  []byte // is valid until the next part is read
}

// eachPart calls fn for every member of the JSON object, or element of the JSON array, in data.
// null has none.
func eachPart(data []byte, fn func(part) error) error {
	d := json.NewDecoder(bytes.NewReader(data))
	open, err := d.Token()
	if err != nil || open == nil {
		return err
	}
	if open != json.Delim('{') && open != json.Delim('[') {
		return errors.New("it is neither an object nor a list")
	}
	var raw json.RawMessage
	for n := 0; d.More(); n++ {
		if n >= maxMembers {
			return errMembers
		}
		var p part
		if open == json.Delim('{') {
			name, failed := d.Token()
			if failed != nil {
				return failed
			}
			p.name, _ = name.(string)
		}
		if err = d.Decode(&raw); err != nil {
			return err
		}
		p.raw = raw
		if err = fn(p); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

// texts returns the members of an object that are short texts.
func texts(data []byte) (map[string]string, error) {
	all := map[string]string{}
	err := eachPart(data, func(p part) error {
		var text string
		if len(p.name)+len(p.raw) <= maxText && json.Unmarshal(p.raw, &text) == nil {
			all[p.name] = text
		}
		return nil
	})
	return all, err
}
