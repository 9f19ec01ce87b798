package api

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
)

// Methods that call a server in another process. Those that stream (Execute, Follow,
// Upload) are in stream.go and upload.go.

var _ sandboxmcp.Service = (*Client)(nil)

// Start implements [sandboxmcp.Runs].
func (c *Client) Start(ctx context.Context, who sandboxmcp.Caller, r sandboxmcp.Request) (sandboxmcp.Result, error) {
	return startRoute.call(ctx, c, who, body[sandboxmcp.Request]{r})
}

// Lookup implements [sandboxmcp.Runs]. Files may come without content: see [Complete].
func (c *Client) Lookup(ctx context.Context, who sandboxmcp.Caller, l sandboxmcp.Lookup) (sandboxmcp.Result, error) {
	return lookupRoute.call(ctx, c, who, lookupIn{ID: l.RequestID, Wait: l.Wait, Cancel: l.Cancel, Content: l.Content})
}

// Jobs implements [sandboxmcp.Runs].
func (c *Client) Jobs(ctx context.Context, who sandboxmcp.Caller) ([]sandboxmcp.Job, error) {
	l, err := jobsRoute.call(ctx, c, who, none{})
	return l.Jobs, err
}

// Cancel implements [sandboxmcp.Runs].
func (c *Client) Cancel(ctx context.Context, who sandboxmcp.Caller, id sandboxmcp.RequestID) error {
	_, err := cancelRoute.call(ctx, c, who, about[sandboxmcp.RequestID]{id})
	return err
}

// Output implements [sandboxmcp.Runs].
func (c *Client) Output(ctx context.Context, who sandboxmcp.Caller, id sandboxmcp.RequestID, stream string) ([]byte, error) {
	out, err := outputRoute.call(ctx, c, who, outputIn{id, stream})
	return out.Content, err
}

// ArtifactContent implements [sandboxmcp.Runs].
func (c *Client) ArtifactContent(ctx context.Context, who sandboxmcp.Caller, id sandboxmcp.RequestID, path string) (sandboxmcp.Artifact, error) {
	return artifactRoute.call(ctx, c, who, file[sandboxmcp.RequestID]{id, path})
}

// CreateSession implements [sandboxmcp.Sessions].
func (c *Client) CreateSession(ctx context.Context, who sandboxmcp.Caller, spec sandboxmcp.SessionSpec) (sandboxmcp.Session, error) {
	return createSessionRoute.call(ctx, c, who, body[sandboxmcp.SessionSpec]{spec})
}

// TerminateSession implements [sandboxmcp.Sessions].
func (c *Client) TerminateSession(ctx context.Context, who sandboxmcp.Caller, id sandboxmcp.SessionID) error {
	_, err := endSessionRoute.call(ctx, c, who, endSessionIn{ID: id})
	return err
}

// CloseSession implements [sandboxmcp.Sessions].
func (c *Client) CloseSession(ctx context.Context, who sandboxmcp.Caller, id sandboxmcp.SessionID) error {
	_, err := endSessionRoute.call(ctx, c, who, endSessionIn{ID: id, IfIdle: true})
	return err
}

// Sessions implements [sandboxmcp.Sessions].
func (c *Client) Sessions(ctx context.Context, who sandboxmcp.Caller) ([]sandboxmcp.Session, error) {
	l, err := sessionsRoute.call(ctx, c, who, none{})
	return l.Sessions, err
}

// Session returns one session of the server, or fails with session_not_found.
func (c *Client) Session(ctx context.Context, who sandboxmcp.Caller, id sandboxmcp.SessionID) (sandboxmcp.Session, error) {
	return sessionRoute.call(ctx, c, who, about[sandboxmcp.SessionID]{id})
}

// Inspect implements [sandboxmcp.Sessions].
func (c *Client) Inspect(ctx context.Context, who sandboxmcp.Caller, id sandboxmcp.SessionID) (sandboxmcp.State, error) {
	return inspectRoute.call(ctx, c, who, inspectIn{id})
}

// Bridge implements [sandboxmcp.Sessions].
func (c *Client) Bridge(ctx context.Context, who sandboxmcp.Caller, b sandboxmcp.Bridge) (sandboxmcp.Bridged, error) {
	return bridgeRoute.call(ctx, c, who, body[sandboxmcp.Bridge]{b})
}

// SessionFiles implements [sandboxmcp.Sessions].
func (c *Client) SessionFiles(ctx context.Context, who sandboxmcp.Caller, id sandboxmcp.SessionID) ([]sandboxmcp.SessionFile, error) {
	l, err := filesRoute.call(ctx, c, who, about[sandboxmcp.SessionID]{id})
	return l.Artifacts, err
}

// SessionEntries implements [sandboxmcp.Sessions].
func (c *Client) SessionEntries(ctx context.Context, who sandboxmcp.Caller, id sandboxmcp.SessionID, deep bool) ([]sandboxmcp.SessionEntry, error) {
	l, err := entriesRoute.call(ctx, c, who, entriesIn{id, deep})
	return l.Entries, err
}

// ReadFile implements [sandboxmcp.Sessions], for at most [MaxFile] bytes.
func (c *Client) ReadFile(ctx context.Context, who sandboxmcp.Caller, id sandboxmcp.SessionID, path string, limit int64) (sandboxmcp.SessionFile, []byte, error) {
	f, err := readFileRoute.call(ctx, c, who, readFileIn{id, path, min(limit, MaxFile)})
	return f.SessionFile, f.Content, err
}

// RemoveFile implements [sandboxmcp.Sessions].
func (c *Client) RemoveFile(ctx context.Context, who sandboxmcp.Caller, id sandboxmcp.SessionID, path string) error {
	_, err := removeFileRoute.call(ctx, c, who, file[sandboxmcp.SessionID]{id, path})
	return err
}

// RequestEgress implements [sandboxmcp.Egress].
func (c *Client) RequestEgress(ctx context.Context, who sandboxmcp.Caller, ask sandboxmcp.EgressAsk) (sandboxmcp.AccessAnswer, error) {
	return askEgressRoute.call(ctx, c, who, body[sandboxmcp.EgressAsk]{ask})
}

// FindApproval implements [sandboxmcp.Egress].
func (c *Client) FindApproval(ctx context.Context, who sandboxmcp.Caller, id string) (sandboxmcp.Approval, error) {
	return findApprovalRoute.call(ctx, c, who, about[string]{id})
}

// DecideEgress implements [sandboxmcp.Egress].
func (c *Client) DecideEgress(ctx context.Context, who sandboxmcp.Caller, d sandboxmcp.AccessDecision) (sandboxmcp.AccessAnswer, error) {
	return decideEgressRoute.call(ctx, c, who, body[sandboxmcp.AccessDecision]{d})
}

// RevokeEgress implements [sandboxmcp.Egress].
func (c *Client) RevokeEgress(ctx context.Context, who sandboxmcp.Caller, domain string) (sandboxmcp.AccessRevoked, error) {
	return revokeEgressRoute.call(ctx, c, who, subjectIn{domain})
}

// Egress implements [sandboxmcp.Egress].
func (c *Client) Egress(ctx context.Context, who sandboxmcp.Caller) (sandboxmcp.AccessList, error) {
	return egressRoute.call(ctx, c, who, none{})
}

// AddSecret implements [sandboxmcp.Secrets].
func (c *Client) AddSecret(ctx context.Context, who sandboxmcp.Caller, s sandboxmcp.SecretSpec) error {
	_, err := addSecretRoute.call(ctx, c, who, secretIn{secretBody{s.Key, []byte(s.Value.Reveal()), s.TTL}})
	return err
}

// DeleteSecret implements [sandboxmcp.Secrets].
func (c *Client) DeleteSecret(ctx context.Context, who sandboxmcp.Caller, key string) error {
	_, err := deleteSecretRoute.call(ctx, c, who, keyIn{key})
	return err
}

// Secrets implements [sandboxmcp.Secrets].
func (c *Client) Secrets(ctx context.Context, who sandboxmcp.Caller) (sandboxmcp.VaultList, error) {
	return secretsRoute.call(ctx, c, who, none{})
}

// Validate implements [sandboxmcp.Checker].
func (c *Client) Validate(ctx context.Context, who sandboxmcp.Caller, check sandboxmcp.CodeCheck) (sandboxmcp.CodeReport, error) {
	return validateRoute.call(ctx, c, who, body[sandboxmcp.CodeCheck]{check})
}

// Install implements [sandboxmcp.Installer]. It passes on no progress.
func (c *Client) Install(ctx context.Context, who sandboxmcp.Caller, ask sandboxmcp.InstallAsk) (sandboxmcp.Installation, error) {
	return installRoute.call(ctx, c, who, body[sandboxmcp.InstallAsk]{ask})
}

// PackageSets implements [sandboxmcp.Installer].
func (c *Client) PackageSets(ctx context.Context, who sandboxmcp.Caller) ([]sandboxmcp.PackageSet, error) {
	l, err := packagesRoute.call(ctx, c, who, none{})
	return l.Sets, err
}

// RemovePackages implements [sandboxmcp.Installer].
func (c *Client) RemovePackages(ctx context.Context, who sandboxmcp.Caller, name string) ([]sandboxmcp.PackageSet, error) {
	l, err := removePackagesRoute.call(ctx, c, who, packageIn{name})
	return l.Sets, err
}

// PackageAccess implements [sandboxmcp.Installer].
func (c *Client) PackageAccess(ctx context.Context, who sandboxmcp.Caller) (sandboxmcp.AccessList, error) {
	return packageAccessRoute.call(ctx, c, who, none{})
}

// DecidePackage implements [sandboxmcp.Installer].
func (c *Client) DecidePackage(ctx context.Context, who sandboxmcp.Caller, d sandboxmcp.AccessDecision) (sandboxmcp.AccessAnswer, error) {
	return decidePackageRoute.call(ctx, c, who, body[sandboxmcp.AccessDecision]{d})
}

// RevokePackage implements [sandboxmcp.Installer].
func (c *Client) RevokePackage(ctx context.Context, who sandboxmcp.Caller, name string) (sandboxmcp.AccessRevoked, error) {
	return revokePackageRoute.call(ctx, c, who, subjectIn{name})
}

// FetchPage implements [sandboxmcp.Web].
func (c *Client) FetchPage(ctx context.Context, who sandboxmcp.Caller, ask sandboxmcp.PageAsk) (sandboxmcp.Page, error) {
	return fetchPageRoute.call(ctx, c, who, body[sandboxmcp.PageAsk]{ask})
}

// BrowsePage implements [sandboxmcp.Web].
func (c *Client) BrowsePage(ctx context.Context, who sandboxmcp.Caller, ask sandboxmcp.BrowserAsk) (sandboxmcp.BrowserPage, error) {
	return browsePageRoute.call(ctx, c, who, body[sandboxmcp.BrowserAsk]{ask})
}

// SearchWeb implements [sandboxmcp.Web].
func (c *Client) SearchWeb(ctx context.Context, who sandboxmcp.Caller, ask sandboxmcp.SearchAsk) (sandboxmcp.SearchResults, error) {
	return searchWebRoute.call(ctx, c, who, body[sandboxmcp.SearchAsk]{ask})
}

// SetLimits implements [sandboxmcp.LimitKeeper].
func (c *Client) SetLimits(ctx context.Context, who sandboxmcp.Caller, change sandboxmcp.LimitsChange) (sandboxmcp.LimitsChanged, error) {
	return limitsRoute.call(ctx, c, who, body[sandboxmcp.LimitsChange]{change})
}

// Audit implements [sandboxmcp.Record].
func (c *Client) Audit(ctx context.Context, who sandboxmcp.Caller, q sandboxmcp.AuditQuery) (sandboxmcp.AuditPage, error) {
	return auditRoute.call(ctx, c, who, auditIn(q))
}

// VerifyAudit implements [sandboxmcp.Record].
func (c *Client) VerifyAudit(ctx context.Context, who sandboxmcp.Caller) (sandboxmcp.AuditReport, error) {
	return verifyAuditRoute.call(ctx, c, who, none{})
}

// Events implements [sandboxmcp.Events].
func (c *Client) Events(ctx context.Context, who sandboxmcp.Caller) ([]sandboxmcp.Event, error) {
	l, err := eventsRoute.call(ctx, c, who, none{})
	return l.Events, err
}

// Runtimes implements [sandboxmcp.Monitor].
func (c *Client) Runtimes(ctx context.Context) (sandboxmcp.Runtimes, error) {
	return runtimesRoute.call(ctx, c, sandboxmcp.Caller{}, none{})
}

// Stats implements [sandboxmcp.Monitor].
func (c *Client) Stats(ctx context.Context) (sandboxmcp.Stats, error) {
	return statsRoute.call(ctx, c, sandboxmcp.Caller{}, none{})
}
