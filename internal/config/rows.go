package config

import (
	"github.com/sandboxmcp/sandboxmcp"
)

// row is one setting: where it may be written, its default and what it means.
type row struct {
	key   string
	env   string
	def   string // as it would be written in the variable
	into  value
	doc   string
	group string
	// secret values never appear in messages.
	secret bool
	// test rows are refused without SANDBOXMCP_TEST=1 and cannot stand in a file.
	test bool
	// later rows are read and checked, and what they set is not built yet.
	later bool
}

// envOnly reports whether the row may not stand in a file: what is for tests
// has to be said in the environment of the one who starts the program.
func (r row) envOnly() bool { return r.test || r.key == "test" }

func (r row) illegal(name, text string) error {
	shown := sandboxmcp.Quote(text)
	if r.secret {
		shown = redacted
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s is %s; it has to be %s", name, shown, r.into.legal()).
		WithHint("correct " + name)
}

// What host commands are allowed and blocked where nobody said otherwise, as
// the Python original had them.
const (
	hostAllowed = "docker ps,docker logs,docker images,docker stats,ls,cat,head,tail,df,free,uptime,whoami,hostname,date,uname," +
		"systemctl status,systemctl is-active,pip list,pip show,npm list,git status,git log,git diff,git branch"
	hostBlocked = "rm,rmdir,sudo,chmod,chown -R,mkfs,dd,shutdown,poweroff,reboot,kill,pkill,killall"
)

// table is the list of all settings, in the order of the documentation, bound
// to the fields of c.
func table(c *Config) []row {
	var all []row
	for _, g := range []struct {
		name  string
		rows  []row
		later bool // whoever builds it takes this away
	}{
		{"State", stateRows(c), false},
		{"Execution", executionRows(c), false},
		{"Limits", limitRows(c), false},
		{"Network", networkRows(c), false},
		{"Web", webRows(c), true},
		{"Host access", hostRows(c), true},
		{"Vault", vaultRows(c), false},
		{"Packages and validation", guardRows(c), true},
		{"Docker", dockerRows(c), true},
		{"Sessions and the tools of mcp-code-sandbox", toolRows(&c.Tools), false},
		{"Handing out files", fileRows(c), false},
		{"HTTP", httpRows(c), true},
		{"Log", logRows(&c.Tools), false},
		{"More of mcp-code-sandbox", moreToolRows(&c.Tools), true},
		{"Tests only", testRows(c), false},
	} {
		for _, r := range g.rows {
			r.group, r.later = g.name, g.later
			all = append(all, r)
		}
	}
	return all
}

func stateRows(c *Config) []row {
	return []row{
		{key: "state_dir", env: "SANDBOXMCP_STATE_DIR", into: text(&c.StateDir, anyText, "a directory"), doc: "Where everything is kept, readable by its owner only. Without it: sandboxmcp below XDG_STATE_HOME, else below ~/.local/state."},
		{key: "sqlite_path", env: "SANDBOXMCP_SQLITE_PATH", into: text(&c.SQLitePath, anyText, "a file"), doc: "The SQLite file. Without it: in the state directory."},
		{key: "audit", env: "SANDBOXMCP_AUDIT", def: "sqlite", into: choice(&c.Audit, "sqlite", "memory"), doc: "Where the audit record is kept. In memory it ends with the process."},
		{key: "synchronous", env: "SANDBOXMCP_SYNCHRONOUS", def: "normal", into: choice(&c.Synchronous, "normal", "full"), doc: "With normal a power cut may lose the last moments of the record; with full every answer waits for the disk."},
		{key: "audit_checkpoint_file", env: "SANDBOXMCP_AUDIT_CHECKPOINT_FILE", into: text(&c.AuditCheckpointFile, anyText, "a file"), doc: "A second place for the signed checkpoints of the audit record: a file, best one that this machine can append to and not change, to which each is appended and synced. One that cannot be opened at start stops the program; a write that fails later is logged and made up for. It is for one record: not for several state directories, nor for one in memory."},
		{key: "audit_keep_days", env: "SANDBOXMCP_AUDIT_KEEP_DAYS", def: "0", into: integer(&c.AuditKeepDays, 0, 36500), doc: "How long audit entries are kept; 0: for ever. Older ones are dropped behind a signed checkpoint, and a signed statement says what went."},
		{key: "namespace", env: "SANDBOXMCP_NAMESPACE", def: "default", into: text(&c.Namespace, namespaceOK, "1 to 64 characters of A-Z a-z 0-9 _ . -"), doc: "The tenant of callers that have no other."},
		{key: "artifact_keep_hours", env: "SANDBOXMCP_ARTIFACT_KEEP_HOURS", def: "24", into: number(&c.ArtifactKeepHours, 0, 87600), doc: "How long artifacts and outputs are kept."},
		{key: "artifact_keep_mb", env: "SANDBOXMCP_ARTIFACT_KEEP_MB", def: "1024", into: integer(&c.ArtifactKeepMB, 1, 1<<24), doc: "How much of them is kept per namespace, in MiB."},
	}
}

func executionRows(c *Config) []row {
	return []row{
		{key: "default_backend", env: "SANDBOXMCP_BACKEND", def: "process", into: choice(&c.DefaultBackend, "process", "docker"), doc: "Where code runs."},
		{key: "isolation_min", env: "SANDBOXMCP_ISOLATION_MIN", def: "L2", into: choice(&c.IsolationMin, "L1", "L2", "L3", "L4"), doc: "A run that would have weaker walls is refused."},
		{key: "max_concurrent_jobs", env: "SANDBOXMCP_MAX_CONCURRENT", def: "4", into: integer(&c.MaxConcurrentJobs, 1, 1024), doc: "How many requests run at a time."},
		{key: "max_queued", env: "SANDBOXMCP_MAX_QUEUED", def: "64", into: integer(&c.MaxQueued, 1, 65536), doc: "How many requests of a namespace may wait; one more is refused with queue_full."},
		{key: "uid_range", env: "SANDBOXMCP_UID_RANGE", def: "1900000000-1933554431", into: uids(&c.UIDRange), doc: "Host user ids that a server running as root takes for its sandboxes, in blocks of 65536. No account may use them."},
		{key: "sandbox_pool", env: "SANDBOXMCP_SANDBOX_POOL", def: "true", into: boolean(&c.SandboxPool), doc: "Keeps the control group of a sandbox that has ended, and its network namespace if no socket was ever made in it, for a minute for the next sandbox, and has a few empty sandboxes ready, for 5 minutes, of what is asked for repeatedly, and an interpreter of Python from which programs are forked, and Node and bash waiting in ready sandboxes. False: everything is made anew for each."},
	}
}

func limitRows(c *Config) []row {
	top := sandboxmcp.DefaultCeilings(1 << 10)
	return []row{
		{key: "max_ram_mb", env: "SANDBOXMCP_MAX_RAM_MB", def: "512", into: integer(&c.MaxRAMMB, 1, top.MaxRAMMB), doc: "Memory and swap of a run, its files included, in MiB."},
		{key: "max_cpu_cores", env: "SANDBOXMCP_MAX_CPU_CORES", def: "1", into: number(&c.MaxCPUCores, 0, top.MaxCPUCores), doc: "Cores of a run; fractions are allowed. More than the machine has is lowered to that."},
		{key: "timeout_seconds", env: "SANDBOXMCP_TIMEOUT", def: "60", into: number(&c.TimeoutSeconds, 0, top.TimeoutSeconds), doc: "Wall clock of a run, and its CPU seconds per core."},
		{key: "max_processes", env: "SANDBOXMCP_MAX_PROCESSES", def: "10", into: integer(&c.MaxProcesses, 1, top.MaxProcesses), doc: "Processes of a run. The kernel is told 16 times as many tasks, because a thread is one."},
		{key: "max_output_bytes", env: "SANDBOXMCP_MAX_OUTPUT_BYTES", def: "1000000", into: integer(&c.MaxOutputBytes, 1, top.MaxOutputBytes), doc: "Bytes of stdout and of stderr that are kept. At 16 times as many the run is ended."},
		{key: "max_code_bytes", env: "SANDBOXMCP_MAX_CODE_BYTES", def: "1048576", into: integer(&c.MaxCodeBytes, 1, int64(64<<20)), doc: "Bytes of code in a request."},
		{key: "work_quota_mb", env: "SANDBOXMCP_WORK_QUOTA_MB", def: "512", into: integer(&c.WorkQuotaMB, 1, 1<<20), doc: "Files below /mnt/data, in MiB; at most half of max_ram_mb, because they count as memory."},
		{key: "ceiling_ram_mb", env: "SANDBOXMCP_CEILING_RAM_MB", def: "8192", into: integer(&c.CeilingRAMMB, 1, top.MaxRAMMB), doc: "The largest max_ram_mb that a caller may ask for."},
		{key: "ceiling_cpu_cores", env: "SANDBOXMCP_CEILING_CPU_CORES", def: "0", into: number(&c.CeilingCPUCores, -1, top.MaxCPUCores), doc: "The largest max_cpu_cores that a caller may ask for; 0: as many as the machine has."},
		{key: "ceiling_timeout_seconds", env: "SANDBOXMCP_CEILING_TIMEOUT", def: "3600", into: number(&c.CeilingTimeoutSeconds, 0, top.TimeoutSeconds), doc: "The largest timeout_seconds that a caller may ask for."},
		{key: "ceiling_processes", env: "SANDBOXMCP_CEILING_PROCESSES", def: "1024", into: integer(&c.CeilingProcesses, 1, top.MaxProcesses), doc: "The largest max_processes that a caller may ask for."},
		{key: "ceiling_output_bytes", env: "SANDBOXMCP_CEILING_OUTPUT_BYTES", def: "67108864", into: integer(&c.CeilingOutputBytes, 1, top.MaxOutputBytes), doc: "The largest max_output_bytes that a caller may ask for."},
	}
}

func networkRows(c *Config) []row {
	return []row{
		{key: "enable_network", env: "SANDBOXMCP_NETWORK", def: "false", into: boolean(&c.EnableNetwork), doc: "False: nothing is open until a person approves it. True: allowed_domains are open, others ask."},
		{key: "allowed_domains", env: "SANDBOXMCP_ALLOWED_DOMAINS", into: items(&c.AllowedDomains, "domains such as name.example, *.name.example or name.example:8443", parseDomain), doc: "Domains that are open when the network is on, at ports 80 and 443 or at the one that is named. A wildcard opens the names below it."},
		{key: "egress_approvals", env: "SANDBOXMCP_EGRESS_APPROVALS", def: "true", into: boolean(&c.EgressApprovals), doc: "False: nobody is asked, and nothing but allowed_domains opens."},
		{key: "egress_private_hosts", env: "SANDBOXMCP_EGRESS_PRIVATE_HOSTS", into: items(&c.EgressPrivateHosts, "names such as name.example or name.example:5432", parseName), doc: "Names whose address may be private, local or otherwise special, at ports 80 and 443 or at the one that is named. It opens nothing: the name has to be allowed or approved as any other."},
		{key: "egress_hold_seconds", env: "SANDBOXMCP_EGRESS_HOLD_SECONDS", def: "0", into: number(&c.EgressHoldSeconds, -1, 3600), doc: "How long a connection to a name that is not open waits, at port 80 or 443 or through the proxy, for a person to approve it, and goes on then; 0: it fails at once. The clock of the run goes on meanwhile."},
	}
}

func webRows(c *Config) []row {
	return []row{
		{key: "web_allow_hosts", env: "SANDBOXMCP_WEB_ALLOW_HOSTS", into: list(&c.WebAllowHosts, hostPortOK, "addresses of the form host:port"), doc: "What the web tools may reach although its address is private. Sandboxes gain nothing by it."},
		{key: "searxng_url", env: "SEARXNG_URL", into: address(&c.SearxngURL), doc: "The search engine that is asked first."},
		{key: "websearch_engines", env: "WEBSEARCH_ENGINES", into: list(&c.SearchEngines, wordOK, "names of search engines"), doc: "Search engines in the order in which they are asked."},
	}
}

func hostRows(c *Config) []row {
	return []row{
		{key: "enable_host_access", env: "SANDBOXMCP_HOST_ACCESS", def: "false", into: boolean(&c.EnableHostAccess), doc: "Turns the host tools on."},
		{key: "host_auto_approve", env: "SANDBOXMCP_HOST_AUTO_APPROVE", def: "false", into: boolean(&c.HostAutoApprove), doc: "Approves what would otherwise ask a person. Said at start and in every result."},
		{key: "host_allowed_commands", def: hostAllowed, into: list(&c.HostAllowedCommands, patternOK, "commands with their first arguments; * alone is none"), doc: "Host commands that need no approval."},
		{key: "host_blocked_commands", def: hostBlocked, into: list(&c.HostBlockedCommands, patternOK, "commands with their first arguments; * alone is none"), doc: "Host commands that are always refused, even when they are allowed too."},
		{key: "host_roots", env: "SANDBOXMCP_HOST_ROOTS", into: list(&c.HostRoots, absoluteOK, "absolute directories"), doc: "Directories that the host file tools may reach. Keys, cloud credentials, .env and agent configuration are refused even there."},
	}
}

func vaultRows(c *Config) []row {
	return []row{
		{key: "vault", env: "SANDBOXMCP_VAULT", def: "sealed", into: choice(&c.Vault, "sealed", "memory", "env"), doc: "Where secrets are: encrypted in the state directory, in the memory of one running server, or in variables SANDBOXMCP_SECRET_{NAMESPACE}_{KEY} of the one who starts the program, the namespace in upper case and every other character of it than letters and digits as _."},
		{key: "vault_key", env: "SANDBOXMCP_VAULT_KEY", def: "file", into: choice(&c.VaultKey, "file", "keyring"), doc: "Where the key of the sealed vault is: in vault.key in the state directory, or in the keyring of the person's desktop session."},
		{key: "vault_inject", env: "SANDBOXMCP_VAULT_INJECT", def: "all", into: choice(&c.VaultInject, "all", "named", "none"), doc: "Which secrets of the namespace a run gets as environment variables: all, those that its env names as secret://KEY, or none. The sandbox_* tools get none."},
		{key: "allow_secret_artifacts", env: "SANDBOXMCP_ALLOW_SECRET_ARTIFACTS", def: "false", into: boolean(&c.AllowSecretArtifacts), doc: "Hands out files in which a secret was found, unaltered, and names them in metadata. Otherwise they are left out, and named in metadata."},
		{key: "redact_pii", env: "SANDBOXMCP_REDACT_PII", def: "false", into: boolean(&c.RedactPII), doc: "Masks e-mail addresses, phone, card and social security numbers in outputs and values. Files are left as they are."},
	}
}

func guardRows(c *Config) []row {
	return []row{
		{key: "packages", env: "SANDBOXMCP_PACKAGES", def: "allow", into: choice(&c.Packages, "allow", "ask", "deny"), doc: "Whether packages may be installed into sandboxes."},
		{key: "packages_min_age_days", env: "SANDBOXMCP_PACKAGES_MIN_AGE_DAYS", def: "0", into: integer(&c.PackagesMinAgeDays, 0, 3650), doc: "How long a release has to be public before it is installed."},
		{key: "packages_allow", env: "SANDBOXMCP_PACKAGES_ALLOW", into: list(&c.PackagesAllow, wordOK, "names of packages"), doc: "When not empty, only these packages are installed."},
		{key: "packages_deny", env: "SANDBOXMCP_PACKAGES_DENY", into: list(&c.PackagesDeny, wordOK, "names of packages"), doc: "Packages that are never installed."},
		{key: "reject_dangerous", env: "SANDBOXMCP_REJECT_DANGEROUS", def: "false", into: boolean(&c.RejectDangerous), doc: "Refuses code with a dangerous pattern instead of warning."},
	}
}

func dockerRows(c *Config) []row {
	return []row{
		{key: "image", env: "SANDBOXMCP_IMAGE", into: text(&c.Image, wordOK, "an image name"), doc: "Image of every language. Without it: our own where present, else python:3.11-slim, node:20-slim, ubuntu:22.04."},
		{key: "memory_limit", def: "256m", into: size(&c.MemoryLimit), doc: "Memory of a container."},
		{key: "cpu_period", def: "100000", into: integer(&c.CPUPeriod, 1000, 1_000_000), doc: "CPU period in microseconds."},
		{key: "cpu_quota", def: "50000", into: integer(&c.CPUQuota, 1000, 1<<30), doc: "CPU time per period in microseconds."},
		{key: "network_mode", def: "none", into: text(&c.NetworkMode, wordOK, "none, or a word for: through our egress"), doc: "Anything but none means: through our egress. It never means an open network."},
		{key: "hardened", def: "true", into: boolean(&c.Hardened), doc: "Read-only root, no capabilities, no new privileges."},
		{key: "workspace_path", into: text(&c.WorkspacePath, anyText, "a directory"), doc: "Directory that is handed to containers; none without it."},
	}
}

func fileRows(c *Config) []row {
	return []row{
		{key: "api_host", env: "SANDBOXMCP_API_HOST", def: "127.0.0.1", into: text(&c.APIHost, wordOK, "a host name or an address"), doc: "Address of the HTTP listener, which links name. Where it is all addresses, 0.0.0.0 or ::, links name the first address of the machine that is not loopback; set that one itself to choose another. Without keys only loopback may be used."},
		{key: "api_port", env: "SANDBOXMCP_API_PORT", def: "8080", into: integer(&c.APIPort, 0, 65535), doc: "Port of the HTTP listener. On stdio there is none unless a port is set."},
		{key: "sandbox_http_host", env: "SANDBOX_HTTP_HOST", def: "127.0.0.1", into: text(&c.Tools.HTTPHost, wordOK, "a host name or an address"), doc: "Address of the listener, where api_host is not set."},
		{key: "sandbox_http_port", env: "SANDBOX_HTTP_PORT", def: "8080", into: integer(&c.Tools.HTTPPort, 0, 65535), doc: "Port of the listener, where api_port is not set."},
	}
}

func httpRows(c *Config) []row {
	return []row{
		{key: "api_keys", env: "SANDBOXMCP_API_KEYS", secret: true, into: keys(&c.APIKeys), doc: "Keys of callers, each with the namespaces it holds; the first is its default. A key without one holds the server's own."},
		{key: "cors_origins", env: "SANDBOXMCP_CORS_ORIGINS", into: list(&c.CORSOrigins, wordOK, "origins such as https://host"), doc: "Web pages that may call the HTTP doors."},
	}
}

func toolRows(t *Tools) []row {
	return []row{
		{key: "sandbox_memory_limit", env: "SANDBOX_MEMORY_LIMIT", def: "512m", into: size(&t.MemoryLimit), doc: "Memory of a run of the five tools. Not set: max_ram_mb."},
		{key: "sandbox_cpu_limit", env: "SANDBOX_CPU_LIMIT", def: "1.0", into: number(&t.CPULimit, 0, 1024), doc: "Their cores. Not set: max_cpu_cores."},
		{key: "sandbox_exec_timeout_s", env: "SANDBOX_EXEC_TIMEOUT_S", def: "60", into: number(&t.ExecTimeoutSeconds, 0, 3600), doc: "Their wall clock. Not set: timeout_seconds."},
		{key: "sandbox_session_ttl_m", env: "SANDBOX_SESSION_TTL_M", def: "30", into: number(&t.SessionTTLMinutes, 0, 525600), doc: "Minutes without use after which a session ends."},
		{key: "sandbox_max_sessions", env: "SANDBOX_MAX_SESSIONS", def: "10", into: integer(&t.MaxSessions, 1, 10000), doc: "How many sessions may be open."},
		{key: "sandbox_cleanup_interval_m", env: "SANDBOX_CLEANUP_INTERVAL_M", def: "5", into: number(&t.CleanupMinutes, 0, 1440), doc: "Minutes between two looks for sessions that have ended. Taken so that old settings hold: a session ends when its time is up, whatever this says."},
		{key: "sandbox_max_upload_bytes", env: "SANDBOX_MAX_UPLOAD_BYTES", def: "52428800", into: integer(&t.MaxUploadBytes, 1, int64(1<<34)), doc: "Bytes of an uploaded file."},
		{key: "sandbox_max_artifact_read_bytes", env: "SANDBOX_MAX_ARTIFACT_READ_BYTES", def: "10485760", into: integer(&t.MaxArtifactReadBytes, 1, int64(1<<30)), doc: "Bytes of an artifact that is read in one answer."},
		{key: "sandbox_max_output_bytes", env: "SANDBOX_MAX_OUTPUT_BYTES", def: "102400", into: integer(&t.MaxOutputBytes, 1, int64(64<<20)), doc: "Bytes of each stream that the five tools answer."},
		{key: "sandbox_max_code_bytes", env: "SANDBOX_MAX_CODE_BYTES", def: "102400", into: integer(&t.MaxCodeBytes, 1, int64(64<<20)), doc: "Bytes of code that sandbox_run_python takes."},
		{key: "sandbox_stateful", env: "SANDBOX_STATEFUL", def: "false", into: boolean(&t.Stateful), doc: "True: the runs of a session of the five tools keep their variables."},
		{key: "sandbox_network", env: "SANDBOX_NETWORK", def: "none", into: choice(&t.Network, "none", "approved"), doc: "Approved: the sessions of the five tools reach what is open. None: they never have a network."},
	}
}

func moreToolRows(t *Tools) []row {
	return []row{
		{key: "sandbox_image", env: "SANDBOX_IMAGE", def: "llm-sandbox:latest", into: text(&t.Image, wordOK, "an image name"), doc: "Image of the five tools on the Docker backend."},
	}
}

func logRows(t *Tools) []row {
	return []row{
		{key: "sandbox_log_level", env: "SANDBOX_LOG_LEVEL", def: "INFO", into: choice(&t.LogLevel, "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"), doc: "What is logged."},
		{key: "sandbox_log_file", env: "SANDBOX_LOG_FILE", def: "logs/sandbox.log", into: text(&t.LogFile, anyText, "a file"), doc: "Where it is logged. Not set: standard error; the default is for mcp-code-sandbox."},
		{key: "sandbox_log_format", env: "SANDBOX_LOG_FORMAT", def: "console", into: choice(&t.LogFormat, "console", "json"), doc: "How it is logged."},
	}
}

func testRows(c *Config) []row {
	return []row{
		{key: "test", env: "SANDBOXMCP_TEST", def: "false", into: boolean(&c.Test), doc: "Allows the two variables below."},
		{key: "egress_test_resolve", env: "SANDBOXMCP_EGRESS_TEST_RESOLVE", test: true, into: items(&c.EgressTestResolve, "mappings of the form name[:port]=ip:port", parseMapping), doc: "Where an allowed connection goes instead of resolving the name."},
		{key: "egress_test_dns", env: "SANDBOXMCP_EGRESS_TEST_DNS", test: true, into: resolver(&c.EgressTestDNS), doc: "The resolver of every other name."},
	}
}
