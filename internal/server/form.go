package server

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

// formName is the one question of our forms.
const formName = "approve"

// formActor is who has answered a form, for the audit.
const formActor = "mcp form"

// formLife is how long a form may be answered; the question itself may wait longer.
const formLife = 5 * time.Minute

// What a person may choose in a form. Opening for good is for a terminal.
const (
	forDay  = "24 hours"
	forHour = "1 hour"
	forRun  = "one run"
)

var formSchema = json.RawMessage(`{"type":"object","properties":{"open_for":{"type":"string","title":"Open for","description":"` +
	forDay + `, ` + forHour + ` or ` + forRun + `","enum":["` + forDay + `","` + forHour + `","` + forRun + `"],"default":"` + forDay + `"}}}`)

// form shows a person what is asked for: the thing itself first, and the model's
// words last, in quotes, as its words.
func form(a sandboxmcp.Approval) *mcp.ElicitParams {
	ports := " (ports 80 and 443)"
	if strings.Contains(a.Domain, ":") {
		ports = ""
	}
	text := "Open " + a.Domain + ports + " to the programs that run here in namespace " + string(a.Namespace) + "?\n" +
		"They can then send there whatever they can read, and take from there whatever they are given.\n" +
		"Declining is final for this request. It lapses at " + a.ExpiresAt.UTC().Format(time.RFC3339) + ".\n"
	if a.Reason != `""` {
		text += "Reason, in the model's words, which nobody has checked: " + a.Reason
	} else {
		text += "The model has given no reason."
	}
	return &mcp.ElicitParams{Message: text, RequestedSchema: formSchema}
}

// openFor takes what a person chose; false: it is nothing that the form offers.
func openFor(content map[string]any, d *sandboxmcp.EgressDecision) bool {
	choice, there := content["open_for"]
	if !there {
		choice = forDay
	}
	switch choice {
	case forDay:
		d.Scope, d.For = sandboxmcp.GrantDuration, 24*time.Hour
	case forHour:
		d.Scope, d.For = sandboxmcp.GrantDuration, time.Hour
	case forRun:
		d.Scope = sandboxmcp.GrantOnce
	default:
		return false
	}
	return true
}

// forms are the forms that are with clients. What a client brings back is
// believed only with our seal on it: which question, of whom, for which call,
// until when; and once.
type forms struct {
	key []byte

	mu   sync.Mutex
	used map[string]time.Time // marks of answered forms, until they would have lapsed
	shut map[string]time.Time // questions whose form a person dismissed
}

func newForms() *forms {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails: crypto/rand ends the program instead
	return &forms{key: key, used: map[string]time.Time{}, shut: map[string]time.Time{}}
}

// formState travels to the client and back.
type formState struct {
	ID        string               `json:"id"`
	SHA256    string               `json:"sha256"` // of what is asked for
	Namespace sandboxmcp.Namespace `json:"namespace"`
	Principal string               `json:"principal"`
	Call      string               `json:"call"` // SHA-256 of the tool and its arguments
	Expires   int64                `json:"expires"`
	Mark      string               `json:"mark"`
}

// principal is who is at the other end. Whoever holds the pipe is the one that
// its namespace belongs to.
func (c *call) principal() string { return "pipe " + string(c.who.Namespace) }

// digest is the SHA-256 of a call, whatever the order of its arguments.
func (c *call) digest() (string, error) {
	b, err := json.Marshal(map[string]any(c.args))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte(c.request.Params.Name+"\n"), b...))
	return hex.EncodeToString(sum[:]), nil
}

func (f *forms) seal(body string) string {
	m := hmac.New(sha256.New, f.key)
	m.Write([]byte(body))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

func (f *forms) issue(c *call, a sandboxmcp.Approval) (string, error) {
	digest, err := c.digest()
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(formState{
		ID: a.ID, SHA256: a.SHA256, Namespace: c.who.Namespace, Principal: c.principal(), Call: digest,
		Expires: time.Now().Add(formLife).Unix(), Mark: rand.Text(),
	})
	if err != nil {
		return "", err
	}
	body := base64.RawURLEncoding.EncodeToString(b)
	return body + "." + f.seal(body), nil
}

// redeem checks what came back with a form, and takes note that it did.
func (f *forms) redeem(c *call) (formState, error) {
	var st formState
	bad := func(why string) (formState, error) {
		return formState{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the answer to the form is not taken: %s", why).
			WithHint("call request_egress again without inputResponses and requestState")
	}
	body, seal, _ := strings.Cut(c.request.Params.RequestState, ".")
	if !hmac.Equal([]byte(seal), []byte(f.seal(body))) {
		return bad("requestState is not one that this server gave")
	}
	b, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil || json.Unmarshal(b, &st) != nil {
		return bad("requestState cannot be read")
	}
	digest, err := c.digest()
	switch {
	case err != nil:
		return st, err
	case st.Namespace != c.who.Namespace || st.Principal != c.principal():
		return bad("it was shown to another")
	case st.Call != digest:
		return bad("it was shown for a call with other arguments")
	case time.Now().Unix() >= st.Expires:
		return bad("it came too late")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, again := f.used[st.Mark]; again {
		return bad("it was answered before")
	}
	remember(f.used, st.Mark, time.Unix(st.Expires, 0))
	return st, nil
}

func (f *forms) dismiss(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	remember(f.shut, id, time.Now().Add(time.Hour))
}

func (f *forms) dismissed(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, is := f.shut[id]
	return is
}

// remember keeps a name until a time, and forgets those whose time is over.
func remember(in map[string]time.Time, name string, until time.Time) {
	now := time.Now()
	for k, t := range in {
		if !now.Before(t) {
			delete(in, k)
		}
	}
	in[name] = until
}
