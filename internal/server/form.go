package server

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/net/publicsuffix"

	"github.com/sandboxmcp/sandboxmcp"
)

// formName is the name of the single question of a form.
const formName = "approve"

// formActor is the actor in audit entries of answers to a form. Over HTTP it names the client, which is one of
// several.
func (s *Server) formActor(c *call) string {
	if !s.http {
		return "mcp form"
	}
	return "mcp form of " + c.who.Actor
}

// formLife is how long a form can be answered. The question may stay open longer.
const formLife = 5 * time.Minute

// The choices of a form. Only the command line can open a domain permanently.
const (
	forDay  = "24 hours"
	forHour = "1 hour"
	forRun  = "one run"
)

var formSchema = json.RawMessage(`{"type":"object","properties":{"open_for":{"type":"string","title":"Allow for","description":"` +
	forDay + `, ` + forHour + ` or ` + forRun + `","enum":["` + forDay + `","` + forHour + `","` + forRun + `"],"default":"` + forDay + `"}}}`)

// egressText returns the question for a domain.
func egressText(a sandboxmcp.Approval) string {
	ports := " (ports 80 and 443)"
	if strings.Contains(a.Domain, ":") {
		ports = ""
	}
	text := "Open " + a.Domain + ports + " to the programs that run here in namespace " + string(a.Namespace) + "?\n" +
		"They can then send there whatever they can read, and take from there whatever they are given.\n"
	if d, err := sandboxmcp.ParseDomain(a.Domain); err == nil && d.Wild && anybodys(string(d.Host)) {
		text += "Warning: anybody can get a name below " + string(d.Host) + ", also an attacker.\n"
	}
	return text
}

// anybodys reports whether names below a host are given to anybody, as those below co.uk and
// github.io are.
func anybodys(host string) bool {
	suffix, _ := publicsuffix.PublicSuffix(host)
	return suffix == host
}

// hostText returns the question for a command of the host.
func hostText(a sandboxmcp.HostApproval) string {
	text := "Allow namespace " + string(a.Namespace) + " to execute this command on the machine of the server, outside of every sandbox?\n" +
		"  " + strconv.Quote(a.Pattern) + "\n"
	if a.Warning != "" {
		text += "Warning: " + a.Warning + ".\n"
	}
	return text
}

// form returns the form for an approval. It shows the question first, and last the model's
// reason, quoted and named as such.
func form(a sandboxmcp.Approval, text string) *mcp.ElicitParams {
	text += "Declining is final for this request. It lapses at " + a.ExpiresAt.UTC().Format(time.RFC3339) + ".\n"
	if a.Reason != "" {
		text += "Reason, in the model's words, which nobody has checked: " + a.Reason
	} else {
		text += "The model has given no reason."
	}
	return &mcp.ElicitParams{Message: text, RequestedSchema: formSchema}
}

// openFor sets the scope of a decision from a person's choice. It returns false if the form
// does not have that choice.
func openFor(content map[string]any, d *sandboxmcp.AccessDecision) bool {
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

// forms issues forms to clients and checks their answers. An answer is accepted once, and
// only with a state that this server has signed. The state names the question, the caller,
// the call and the time of expiry.
type forms struct {
	key []byte

	mu   sync.Mutex
	used map[string]time.Time // ids of answered forms, until they expire
	shut map[string]time.Time // questions whose form was dismissed
}

func newForms() *forms {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails: crypto/rand ends the program instead
	return &forms{key: key, used: map[string]time.Time{}, shut: map[string]time.Time{}}
}

// formState is sent to the client with a form, and the client returns it with the answer.
type formState struct {
	ID        string               `json:"id"`
	SHA256    string               `json:"sha256"` // SHA-256 of the question
	Namespace sandboxmcp.Namespace `json:"namespace"`
	Principal string               `json:"principal"`
	Call      string               `json:"call"` // SHA-256 of the tool and its arguments
	Expires   int64                `json:"expires"`
	Mark      string               `json:"mark"`
}

// principal identifies the client that a form was shown to.
func (c *call) principal() string { return c.peer + "\x00" + string(c.who.Namespace) }

// digest returns the SHA-256 of a call, independent of the order of its arguments.
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

// redeem checks the state of an answered form and marks the form as used.
func (f *forms) redeem(c *call) (formState, error) {
	var st formState
	bad := func(why string) (formState, error) {
		return formState{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the answer to the form is refused: %s", why).
			WithHint("call " + c.request.Params.Name + " again without inputResponses and requestState")
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
	case !c.decides:
		return bad("this caller cannot answer")
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

// remember stores a name until a time, and removes expired names.
func remember(in map[string]time.Time, name string, until time.Time) {
	now := time.Now()
	for k, t := range in {
		if !now.Before(t) {
			delete(in, k)
		}
	}
	in[name] = until
}
