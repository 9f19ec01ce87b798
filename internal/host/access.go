package host

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
)

// Request asks a person to allow a command and waits up to ask.Wait for the answer. A command
// that a rule allows is approved at once. It fails with host_access_blocked for a command that
// no person can allow.
func (h *Host) Request(ctx context.Context, c sandboxmcp.Caller, ask sandboxmcp.HostAsk, masks gate.Masks) (sandboxmcp.AccessAnswer, error) {
	if !h.cfg.Enabled {
		return sandboxmcp.AccessAnswer{}, disabled()
	}
	p, err := h.lookedPattern(ctx, ask.Pattern)
	if err != nil {
		return sandboxmcp.AccessAnswer{}, h.refused(ctx, c, "host_access", "a pattern that is refused", err)
	}
	answer := sandboxmcp.AccessAnswer{Subject: sandboxmcp.Subject{Pattern: p.String()}, Approved: true, Status: sandboxmcp.ApprovalApproved}
	words, _ := p.words()
	for _, r := range h.set.Load().rules {
		if r.fits(words) {
			return answer, h.outcome(ctx, entry{c: c, action: "host_access", detail: cut(p.String())}, map[string]any{"rule": r.Text}, nil, true)
		}
	}
	q, err := h.gate.Question(ctx, c, p, gate.Ask{Reason: ask.Reason})
	if err == nil && q.Answer.Approved {
		_, err = looked(ctx, timeToLook, func(ctx context.Context) (struct{}, error) { return struct{}{}, h.stillAllowed(ctx, c.Namespace, p) })
	}
	if err != nil || q.Answered {
		return q.Answer, err
	}
	return h.gate.Ask(ctx, q, masks, ask.Wait)
}

// stillAllowed fails with host_access_denied if a file of a command's program was changed after each time that a person has
// allowed the command.
func (h *Host) stillAllowed(ctx context.Context, ns sandboxmcp.Namespace, p Pattern) error {
	words, _ := p.words()
	prog, err := find(words[0])
	if err != nil {
		return err
	}
	all, err := h.gate.List(ctx, ns)
	if err != nil {
		return err
	}
	changed := false
	for _, g := range all.Granted {
		granted, err := ParsePattern(g.Pattern)
		if err != nil || !granted.Covers(p) {
			continue
		}
		if !prog.changedSince(g.GrantedAt, h.system) {
			return nil
		}
		changed = true
	}
	if changed {
		return changedProgram(words)
	}
	return nil
}

// pattern parses a pattern that a person can allow.
func (h *Host) pattern(text string) (Pattern, error) {
	p, err := ParsePattern(text)
	if err != nil {
		return p, h.blockedLine(text, err)
	}
	words, free := p.words()
	prog, err := find(words[0])
	if err != nil {
		return p, err
	}
	if slices.Contains(free, true) && warningOf(words) != "" {
		return p, freeWords()
	}
	if rule := h.set.Load().blocked.rule(words, prog.path); rule != "" {
		return p, blockedError(words, rule)
	}
	if err := h.unchangeable(words[0], prog); err != nil {
		return p, err
	}
	h.pins.changed(prog) // from now on the program file must stay the same
	return p, nil
}

// blockedLine returns host_access_blocked in place of err if a line that cannot be parsed
// begins with a blocked program.
func (h *Host) blockedLine(text string, err error) error {
	words := strings.Fields(text)
	if len(words) == 0 || strings.IndexFunc(text, control) >= 0 {
		return err
	}
	if rule := h.set.Load().blocked.rule(words, ""); rule != "" {
		return blockedError(words, rule)
	}
	return err
}

// List lists the rules of a namespace, or of all if ns is empty.
func (h *Host) List(ctx context.Context, ns sandboxmcp.Namespace) (sandboxmcp.HostAccess, error) {
	rules := h.set.Load()
	l := sandboxmcp.HostAccess{
		Allowed: append([]string{}, rules.allowed...), Blocked: append([]string{}, rules.blockedTexts...), Approved: []sandboxmcp.AccessGrant{}, Pending: []sandboxmcp.HostApproval{},
		Enabled: h.cfg.Enabled, AutoApprove: h.cfg.AutoApprove && h.cfg.Enabled,
	}
	all, err := h.gate.List(ctx, ns)
	if err != nil {
		return l, err
	}
	l.Approved = append(l.Approved, all.Granted...)
	warnings := warningsOf(ctx, all.Pending)
	for i, a := range all.Pending {
		p := sandboxmcp.HostApproval{Approval: a, Warning: warnings[i]}
		if letters := foreignLetters(a.Pattern); letters != "" && p.Warning != "" {
			p.Warning += "; " + letters
		} else if letters != "" {
			p.Warning = letters
		}
		l.Pending = append(l.Pending, p)
	}
	return l, nil
}

// timeToWarn bounds the look at the programs of all questions, because a person waits for the list.
const timeToWarn = 5 * time.Second

// warningsOf returns a warning for each question, or "". If the programs are not all looked at in time, each question has a warning that says so.
func warningsOf(ctx context.Context, pending []sandboxmcp.Approval) []string {
	found, err := looked(ctx, timeToWarn, func(context.Context) ([]string, error) {
		all := make([]string, len(pending))
		for i, a := range pending {
			if words, err := Words(a.Pattern); err == nil {
				all[i] = warningOf(words)
			}
		}
		return all, nil
	})
	if err != nil {
		return slices.Repeat([]string{"its program could not be looked at in time, so it may be one that executes others"}, len(pending))
	}
	return found
}

// warningOf is [Warning] also for the program to which the first word leads, such as a shell with another name.
func warningOf(words []string) string {
	why := Warning(words)
	prog, err := find(words[0])
	if why != "" || err != nil || prog.path == "" || slices.Contains(manyNamed(), programName(prog.path)) {
		return why
	}
	return Warning(append([]string{prog.path}, words[1:]...))
}

// latinLooking are letters of other scripts that look like Latin ones, and what may stand between them. Most letters of Cherokee, Lisu and Coptic do, too, and
// many of the other scripts that are named below.
const latinLooking = "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u04bb\u0501\u051b\u051d\u04cf\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423" +
	"\u0425\u0406\u0408\u0405\u051a\u051c\u04c0\u03bf\u03bd\u03b1\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03f2\u03f3\u03c1\u03c5\u03b9\u0585\u057d\u0570\u0578\u0575\u0566\u0581" +
	"\u04ae\u04af\u0474\u0475\u04ba\u0500\u037f\u03c7\u03f9\u0555\u054f\u054d\u053c\u101d\u0b20\u0d20\u12d0_-"

// foreignLetters warns of a word that has letters of the Latin script and others, or only such as look like Latin ones, or "". Then the
// word may name another file than a person reads. Names in Chinese, Japanese and Korean often have Latin letters. It also warns of characters that look like others, and of letters of scripts that are written from right to left, because a
// terminal may show the words around them in another order.
func foreignLetters(text string) string {
	for _, w := range strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) && r != '_' && r != '-' }) {
		latin := strings.ContainsFunc(w, func(r rune) bool { return unicode.Is(unicode.Latin, r) })
		other := strings.ContainsFunc(w, func(r rune) bool {
			return unicode.IsLetter(r) && !unicode.In(r, unicode.Latin, unicode.Common, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo)
		})
		if other && (latin || !strings.ContainsFunc(w, func(r rune) bool {
			return !strings.ContainsRune(latinLooking, r) && !unicode.In(r, unicode.Cherokee, unicode.Lisu, unicode.Coptic, unicode.Canadian_Aboriginal, unicode.Tifinagh, unicode.Old_Italic, unicode.Deseret, unicode.Osage)
		})) {
			return strconv.QuoteToASCII(w) + " has letters that look like those of another script, and may name something else than it seems to"
		}
	}
	if strings.ContainsFunc(text, imitating) {
		return "it has characters that look like others, or change those before them, and may name something else than it seems to: " + strconv.QuoteToASCII(text)
	}
	if strings.ContainsFunc(text, leftward) {
		return "it has letters that are written from right to left, so its words may be shown in another order: " + strconv.QuoteToASCII(text)
	}
	return ""
}

// imitating reports whether a person may take a character for an ASCII one, or for a part of the one before it: signs and digits such as a slash for
// divisions, forms of Latin letters for mathematics and phonetics, and marks that are joined to a letter. Signs of Chinese and Japanese are not counted.
func imitating(r rune) bool {
	switch {
	case r <= unicode.MaxASCII, r >= 0x3001 && r <= 0x303F, r == 0x3099, r == 0x309A, r == 0x30FB, r == 0x30FC, leftward(r):
		return false
	case unicode.Is(unicode.Latin, r):
		return r > 0x24F && (r < 0x1E00 || r > 0x1EFF) || r >= 0x1C0 && r <= 0x1C3
	}
	return unicode.In(r, unicode.Common, unicode.Inherited) || !unicode.IsLetter(r) && !unicode.IsMark(r)
}

// leftward reports whether a character is one of the blocks of scripts that are written from right to left.
func leftward(r rune) bool {
	return r >= 0x590 && r <= 0x8FF || r >= 0xFB1D && r <= 0xFDFF || r >= 0xFE70 && r <= 0xFEFF || r >= 0x10800 && r <= 0x10FFF || r >= 0x1E800 && r <= 0x1EFFF
}

// Find returns a question. An empty namespace means all. It fails with request_not_found.
func (h *Host) Find(ctx context.Context, ns sandboxmcp.Namespace, id string) (sandboxmcp.Approval, error) {
	return h.gate.Find(ctx, ns, id)
}

// Decide carries out a person's decision: it answers a question, or allows a command for which
// there was none.
func (h *Host) Decide(ctx context.Context, c sandboxmcp.Caller, d sandboxmcp.AccessDecision) (sandboxmcp.AccessAnswer, error) {
	var p Pattern
	if d.ID == "" && h.cfg.Enabled {
		var err error
		if p, err = h.lookedPattern(ctx, d.Pattern); err != nil {
			return sandboxmcp.AccessAnswer{}, err
		}
	}
	answer, _, err := h.gate.Decide(ctx, c, d)
	if words, _ := p.words(); err == nil && answer.Approved && !d.Check && len(words) > 0 {
		_, _ = looked(ctx, timeToLook, func(context.Context) (struct{}, error) { // the person allows the file that is there now; former grants do not hold for it
			h.pins.renew(words[0])
			return struct{}{}, nil
		})
	}
	return answer, err
}

// Revoke withdraws what persons have allowed. It fails with request_not_found if there is no
// such grant.
func (h *Host) Revoke(ctx context.Context, c sandboxmcp.Caller, pattern string) (sandboxmcp.AccessRevoked, error) {
	return h.gate.Revoke(ctx, c, pattern)
}

// lookedPattern is as pattern, on a thread of its own and for timeToLook at most.
func (h *Host) lookedPattern(ctx context.Context, text string) (Pattern, error) {
	return looked(ctx, timeToLook, func(context.Context) (Pattern, error) { return h.pattern(text) })
}
