package config

import (
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// row is one setting: its key, variable, default and documentation.
type row struct {
	key   string
	env   string
	def   string // as written in the variable
	into  value
	doc   string
	group string
	// secret values never appear in messages.
	secret bool
	// test rows are refused without SANDBOXMCP_TEST=1 and in a file.
	test bool
}

// live reports whether the setting can be reloaded while a server runs.
func (r row) live() bool { return slices.Contains(reloaded, r.key) }

// envOnly reports whether the row can only be set by its variable. Settings for tests must
// not be set by a file.
func (r row) envOnly() bool { return r.test || r.key == "test" }

// shown returns a text as messages quote it: a secret, or a URL with a user, is hidden.
func (r row) shown(text string) string {
	if r.secret || userInURL(text) {
		return redacted
	}
	return sandboxmcp.Quote(text)
}

// userInURL reports whether a text may be a URL with a user or a parameter, and so with a password.
func userInURL(text string) bool {
	return strings.Contains(text, "://") && (strings.Contains(text, "@") || strings.Contains(strings.ToLower(text), "password"))
}

func (r row) illegal(name, text string) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s is %s; it has to be %s", name, r.shown(text), r.into.legal()).
		WithHint("correct " + name)
}

// process is the name of the backend of the server's own kernel.
const process = "process"

// docker is the name of the backend whose sandboxes are containers.
const docker = "docker"

// Kube is the name of the backend whose sandboxes are pods of a Kubernetes cluster.
const Kube = "kube"

// Default lists of allowed and blocked host commands. They are those of the Python project
// sandboxmcp.
const (
	hostAllowed = "docker ps,docker logs,docker images,docker stats,ls,cat,head,tail,df,free,uptime,whoami,hostname,date,uname," +
		"systemctl status,systemctl is-active,pip list,pip show,npm list,git status,git log,git diff,git branch"
	hostBlocked = "rm,rmdir,sudo,chmod,chown -R,mkfs,dd,shutdown,poweroff,reboot,kill,pkill,killall"
)

// reloaded are the settings that a server reads again on SIGHUP: limits, and lists and policies of
// what is allowed. engine.Reload applies them to the engine, and internal/app to its front ends.
var reloaded = []string{
	"max_ram_mb", "max_cpu_cores", "timeout_seconds", "max_processes", "max_output_bytes", "max_code_bytes", "work_quota_mb",
	"ceiling_ram_mb", "ceiling_cpu_cores", "ceiling_timeout_seconds", "ceiling_processes", "ceiling_output_bytes",
	"max_concurrent_jobs", "max_queued", "artifact_keep_hours", "artifact_keep_mb", "audit_keep_days",
	"enable_network", "allowed_domains", "egress_approvals", "egress_private_hosts", "egress_hold_seconds", "enable_web_access", "web_allow_hosts",
	"host_allowed_commands", "host_blocked_commands", "host_roots",
	"packages", "packages_allow", "packages_deny", "packages_min_age_days", "reject_dangerous", "validation_disabled",
	"sandbox_memory_limit", "sandbox_cpu_limit", "sandbox_exec_timeout_s", "sandbox_session_ttl_m", "sandbox_max_sessions",
	"sandbox_max_upload_bytes", "sandbox_max_artifact_read_bytes", "sandbox_max_output_bytes", "sandbox_max_code_bytes", "sandbox_network",
	"mcp_output_chars", "api_keys", "cors_origins", "api_rate",
}

// table is the list of all settings, in the order of the documentation, bound
// to the fields of c.
func table(c *Config) []row {
	groups := []struct {
		name string
		rows []row
	}{
		{"State", stateRows(c)},
		{"Execution", executionRows(c)},
		{"Limits", limitRows(c)},
		{"Network", networkRows(c)},
		{"Web", webRows(c)},
		{"Host access", hostRows(c)},
		{"Vault", vaultRows(c)},
		{"Checking code", checkRows(c)},
		{"Packages", packageRows(c)},
		{"Docker", dockerRows(c)},
		{"Kubernetes", kubeRows(&c.Kube)},
		{"Docker settings of mcpaisuite-sandboxmcp", containerRows(c)},
		{"Sessions and the tools of mcp-code-sandbox", toolRows(&c.Tools)},
		{"Handing out files", fileRows(c)},
		{"Answers over MCP", answerRows(c)},
		{"HTTP", httpRows(c)},
		{"Log", logRows(&c.Tools)},
		{"Tests only", testRows(c)},
	}
	n := 0
	for _, g := range groups {
		n += len(g.rows)
	}
	all := make([]row, 0, n)
	for _, g := range groups {
		for _, r := range g.rows {
			r.group = g.name
			all = append(all, r)
		}
	}
	return all
}

func stateRows(c *Config) []row {
	return []row{
		{key: "state_dir", env: "SANDBOXMCP_STATE_DIR", into: text(&c.StateDir, anyText, "a directory"), doc: "Directory of all stored data, readable by its owner only. Not set: sandboxmcp in XDG_STATE_HOME, or in ~/.local/state."},
		{key: "sqlite_path", env: "SANDBOXMCP_SQLITE_PATH", into: text(&c.SQLitePath, anyText, "a file"), doc: "Path of the SQLite database. Not set: in the state directory."},
		{key: "database_url", env: "SANDBOXMCP_DATABASE_URL", into: database(&c.DatabaseURL), doc: "URL of a PostgreSQL database that is used instead of SQLite, such as postgres://host:5432/database with a user and a password. Servers of several machines may share it. The search_path of the URL chooses the schema."},
		{key: "blob_url", env: "SANDBOXMCP_BLOB_URL", into: text(&c.BlobURL, bucketOK, "a URL such as s3://bucket/prefix?endpoint=https://host:9000, without a key"), doc: "Bucket of an S3-compatible store, in which the servers of several machines keep files and large outputs; it needs database_url. s3://bucket/prefix has the parameters endpoint (https://host:port; not set: AWS) and region. The key is read from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the file that AWS_SHARED_CREDENTIALS_FILE names, or the role of the machine. A lifecycle rule of the bucket has to expire objects a day after artifact_keep_hours. Not set: the state directory of the server that ran the request."},
		{key: "peer_address", env: "SANDBOXMCP_PEER_ADDRESS", into: text(&c.PeerAddress, hostPortOK, "an address with a port, such as 10.1.2.3:8932"), doc: "Address and port of this server for the other servers of the same database; it needs database_url and serve. A call for a session or a run of another server is passed on to that server. A server proves to the others that it belongs to them by the signing key, which has to be the same on all. Not set: each server knows its own sessions alone."},
		{key: "keys_from", env: "SANDBOXMCP_KEYS_FROM", into: text(&c.KeysFrom, anyText, "a directory"), doc: "Directory with the files signing.key and vault.key, such as a mounted secret. At the start they are copied into a state directory that has none. If it has others, or if the directory has no key, the server does not start. Servers that share a database need the same keys."},
		{key: "audit", env: "SANDBOXMCP_AUDIT", def: "sqlite", into: choice(&c.Audit, "sqlite", "memory"), doc: "Where the audit record is stored. In memory it ends with the process."},
		{key: "synchronous", env: "SANDBOXMCP_SYNCHRONOUS", def: "normal", into: choice(&c.Synchronous, "normal", "full"), doc: "SQLite's synchronous mode. With normal, a power failure may lose the latest entries. With full, every answer waits for the disk."},
		{key: "audit_checkpoint_file", env: "SANDBOXMCP_AUDIT_CHECKPOINT_FILE", into: text(&c.AuditCheckpointFile, anyText, "a file"), doc: "A second file for the signed checkpoints of the audit record. Use a file that this machine can append to but not change. Each checkpoint is appended and synced. If the file cannot be opened at start, the program stops. If a later write fails, it is logged and repeated. Use one file for each state directory, and none for a record in memory."},
		{key: "audit_keep_days", env: "SANDBOXMCP_AUDIT_KEEP_DAYS", def: "0", into: integer(&c.AuditKeepDays, 0, 36500), doc: "How many days audit entries are kept; 0: forever. Older entries are dropped only up to a signed checkpoint, and a signed statement lists what was dropped."},
		{key: "namespace", env: "SANDBOXMCP_NAMESPACE", def: "default", into: text(&c.Namespace, namespaceOK, "1 to 64 characters of A-Z a-z 0-9 _ . -"), doc: "The namespace (tenant) of callers that name none."},
		{key: "artifact_keep_hours", env: "SANDBOXMCP_ARTIFACT_KEEP_HOURS", def: "24", into: number(&c.ArtifactKeepHours, 0, 87600), doc: "How many hours artifacts and outputs are kept."},
		{key: "artifact_keep_mb", env: "SANDBOXMCP_ARTIFACT_KEEP_MB", def: "1024", into: integer(&c.ArtifactKeepMB, 1, 1<<24), doc: "How many MiB of artifacts and outputs are kept per namespace."},
	}
}

func executionRows(c *Config) []row {
	return []row{
		{key: "default_backend", env: "SANDBOXMCP_BACKEND", def: process, into: choice(&c.DefaultBackend, process, docker, Kube), doc: "The backend that runs code. If it is not process, callers over MCP and HTTP cannot choose another. kube, whose sandboxes are pods of a Kubernetes cluster, is only in the program sandboxmcp-kube."},
		{key: "isolation_min", env: "SANDBOXMCP_ISOLATION_MIN", def: "L2", into: choice(&c.IsolationMin, "L1", "L2", "L3", "L4"), doc: "The weakest isolation tier that is accepted. A run that would have a weaker one is refused."},
		{key: "rootfs", env: "SANDBOXMCP_ROOTFS", into: text(&c.RootFS, absoluteOK, "an absolute directory"), doc: "Root file system that sandboxes of the process backend see read-only in place of this machine's /usr, and whose interpreters they use. `sandboxmcp image build --rootfs DIR` makes one. Not set: this machine's."},
		{key: "max_concurrent_jobs", env: "SANDBOXMCP_MAX_CONCURRENT", def: "4", into: integer(&c.MaxConcurrentJobs, 1, 1024), doc: "How many requests run at the same time. A namespace that runs a request cannot take the last place while another known namespace runs none. Known are the namespaces of api_keys and the last 64 others that sent requests. All namespaces of one key count together, and no place is kept from a key for namespaces that no other key has. With oauth_issuer, the last place is always kept for a namespace that runs no request. With 1, no place is kept. In the same way, a quarter of the kernel tasks is kept for other namespaces."},
		{key: "max_queued", env: "SANDBOXMCP_MAX_QUEUED", def: "1024", into: integer(&c.MaxQueued, 1, 65536), doc: "How many requests of a namespace, or of a key with several, may wait. Further ones are refused with queue_full. A request is also refused if the code and input of all waiting ones would then exceed 64 MiB."},
		{key: "uid_range", env: "SANDBOXMCP_UID_RANGE", def: "1900000000-1933554431", into: uids(&c.UIDRange), doc: "Host user ids for the sandboxes of a server that runs as root, used in blocks of 65536. No account may have one of them."},
		{key: "sandbox_pool", env: "SANDBOXMCP_SANDBOX_POOL", def: "true", into: boolean(&c.SandboxPool), doc: "Makes runs start faster. Keeps the cgroup and the unused network namespace of an ended sandbox for a minute, for the next one. After two requests of a kind, or one if the server runs as root, keeps empty sandboxes ready for that kind for 5 minutes, with Node or bash started in them. Forks Python programs from a started interpreter. False: every run gets a new sandbox and a new interpreter."},
		{key: "run_server", env: "SANDBOXMCP_RUN_SERVER", def: "use", into: choice(&c.RunServer, "use", "start", "off"), doc: "Whether `sandboxmcp run` without --session passes the program to a running server of the same user, which is faster. use: pass it on if a server with the same settings and environment runs and has a free place. start: as use, but start such a server in the background if none runs. off: never pass it on."},
	}
}

func limitRows(c *Config) []row {
	top := sandboxmcp.DefaultCeilings(1 << 10)
	return []row{
		{key: "max_ram_mb", env: "SANDBOXMCP_MAX_RAM_MB", def: "512", into: integer(&c.MaxRAMMB, 1, top.MaxRAMMB), doc: "Memory and swap of a run in MiB, including its files."},
		{key: "max_cpu_cores", env: "SANDBOXMCP_MAX_CPU_CORES", def: "1", into: cores(&c.MaxCPUCores, top.MaxCPUCores), doc: "CPU cores of a run; fractions are allowed. At least 0.01, and at most as many as the machine has."},
		{key: "timeout_seconds", env: "SANDBOXMCP_TIMEOUT", def: "60", into: number(&c.TimeoutSeconds, 0, top.TimeoutSeconds), doc: "Wall-clock seconds of a run, and its CPU seconds per core."},
		{key: "max_processes", env: "SANDBOXMCP_MAX_PROCESSES", def: "10", into: integer(&c.MaxProcesses, 1, top.MaxProcesses), doc: "Processes of a run. The kernel's limit is 16 times as many tasks, because it counts each thread."},
		{key: "max_output_bytes", env: "SANDBOXMCP_MAX_OUTPUT_BYTES", def: "1000000", into: integer(&c.MaxOutputBytes, 1, top.MaxOutputBytes), doc: "Bytes of stdout and of stderr that are kept. A run that writes 16 times as many is ended."},
		{key: "max_code_bytes", env: "SANDBOXMCP_MAX_CODE_BYTES", def: "1048576", into: integer(&c.MaxCodeBytes, 1, int64(64<<20)), doc: "Largest code of a request in bytes."},
		{key: "work_quota_mb", env: "SANDBOXMCP_WORK_QUOTA_MB", def: "512", into: integer(&c.WorkQuotaMB, 1, 1<<20), doc: "Size of /mnt/data in MiB. At most half of max_ram_mb, because its files count as memory."},
		{key: "ceiling_ram_mb", env: "SANDBOXMCP_CEILING_RAM_MB", def: "8192", into: integer(&c.CeilingRAMMB, 1, top.MaxRAMMB), doc: "The largest max_ram_mb that a caller may ask for."},
		{key: "ceiling_cpu_cores", env: "SANDBOXMCP_CEILING_CPU_CORES", def: "0", into: number(&c.CeilingCPUCores, -1, top.MaxCPUCores), doc: "The largest max_cpu_cores that a caller may ask for, at least 0.01; 0: as many as the machine has."},
		{key: "ceiling_timeout_seconds", env: "SANDBOXMCP_CEILING_TIMEOUT", def: "3600", into: number(&c.CeilingTimeoutSeconds, 0, top.TimeoutSeconds), doc: "The largest timeout_seconds that a caller may ask for."},
		{key: "ceiling_processes", env: "SANDBOXMCP_CEILING_PROCESSES", def: "1024", into: integer(&c.CeilingProcesses, 1, top.MaxProcesses), doc: "The largest max_processes that a caller may ask for."},
		{key: "ceiling_output_bytes", env: "SANDBOXMCP_CEILING_OUTPUT_BYTES", def: "67108864", into: integer(&c.CeilingOutputBytes, 1, top.MaxOutputBytes), doc: "The largest max_output_bytes that a caller may ask for."},
	}
}

func networkRows(c *Config) []row {
	return []row{
		{key: "enable_network", env: "SANDBOXMCP_NETWORK", def: "false", into: boolean(&c.EnableNetwork), doc: "True: allowed_domains are open. False: they are not. A person can approve other domains in both cases."},
		{key: "allowed_domains", env: "SANDBOXMCP_ALLOWED_DOMAINS", into: items(&c.AllowedDomains, "domains such as name.example, *.name.example or name.example:8443", parseDomain), doc: "Domains that are open if enable_network is true, at ports 80 and 443 or at the named port. A wildcard opens all names below the domain."},
		{key: "egress_approvals", env: "SANDBOXMCP_EGRESS_APPROVALS", def: "true", into: boolean(&c.EgressApprovals), doc: "True: persons can approve further domains. False: only allowed_domains can be open."},
		{key: "egress_private_hosts", env: "SANDBOXMCP_EGRESS_PRIVATE_HOSTS", into: items(&c.EgressPrivateHosts, "names such as name.example or name.example:5432", parseName), doc: "Host names that may have a private, local or otherwise special address, at ports 80 and 443 or at the named port. This does not open them: they have to be allowed or approved like any other name."},
		{key: "egress_hold_seconds", env: "SANDBOXMCP_EGRESS_HOLD_SECONDS", def: "0", into: number(&c.EgressHoldSeconds, -1, 3600), doc: "How many seconds a connection to a domain that is not open waits for a person's approval, at port 80 or 443 or through the proxy. 0: it fails at once. The run's timeout_seconds includes the wait."},
	}
}

func webRows(c *Config) []row {
	return []row{
		{key: "enable_web_access", env: "SANDBOXMCP_WEB_ACCESS", def: "true", into: boolean(&c.EnableWebAccess), doc: "True: web_search, fetch_webpage and browser_fetch reach public addresses without approval, except hosts that a person has denied. False: they answer network_disabled."},
		{key: "web_allow_hosts", env: "SANDBOXMCP_WEB_ALLOW_HOSTS", into: list(&c.WebAllowHosts, hostPortOK, "addresses of the form host:port"), doc: "Hosts with ports that the web tools may reach although the address is private, or the port is one of mail, databases or another protocol. This does not open them to sandboxes."},
		{key: "searxng_url", env: "SEARXNG_URL", into: address(&c.SearxngURL), doc: "URL of the SearXNG search engine, which is asked first. If its address is private, list it in web_allow_hosts, too."},
		{key: "websearch_engines", env: "WEBSEARCH_ENGINES", into: list(&c.SearchEngines, wordOK, "names of search engines"), doc: "Search engines, in the order in which they are asked."},
	}
}

func hostRows(c *Config) []row {
	return []row{
		{key: "enable_host_access", env: "SANDBOXMCP_HOST_ACCESS", def: "false", into: boolean(&c.EnableHostAccess), doc: "Enables the host tools."},
		{key: "host_auto_approve", env: "SANDBOXMCP_HOST_AUTO_APPROVE", def: "false", into: boolean(&c.HostAutoApprove), doc: "Approves host commands without asking a person. The server says so at start and in every result."},
		{key: "host_allowed_commands", def: hostAllowed, into: list(&c.HostAllowedCommands, patternOK, "commands with their first arguments; * alone is none"), doc: "Host commands that need no approval."},
		{key: "host_blocked_commands", def: hostBlocked, into: list(&c.HostBlockedCommands, patternOK, "commands with their first arguments; * alone is none"), doc: "Host commands that are always refused, even if they are also allowed."},
		{key: "host_roots", env: "SANDBOXMCP_HOST_ROOTS", into: list(&c.HostRoots, absoluteOK, "absolute directories"), doc: "Directories that the host file tools may access. Keys, cloud credentials, .env files and agent configuration are refused there, too."},
		{key: "workspace_path", into: text(&c.WorkspacePath, anyText, "a directory"), doc: "Host directory that all programs see at /workspace, with everything in it, and that host_file_copy copies into. Not set: none."},
		{key: "workspace_mode", def: "ro", into: choice(&c.WorkspaceMode, "ro", "rw"), doc: "Whether programs can only read the workspace (ro) or also change it (rw). With rw, all programs of all namespaces can change every file in it, without a quota. If the server runs as root, rw needs a directory that an ordinary user owns, and files that programs make belong to that user."},
	}
}

func vaultRows(c *Config) []row {
	return []row{
		{key: "vault", env: "SANDBOXMCP_VAULT", def: "sealed", into: choice(&c.Vault, "sealed", "memory", "env"), doc: "Where secrets are stored: encrypted in the state directory (sealed), in the memory of one server, or in variables SANDBOXMCP_SECRET_{NAMESPACE}_{KEY} of the server's environment (env). In a variable's name, NAMESPACE is in upper case, with _ for every character that is not a letter or digit. Only namespaces that namespace or api_keys name have secrets there."},
		{key: "vault_key", env: "SANDBOXMCP_VAULT_KEY", def: "file", into: choice(&c.VaultKey, "file", "keyring"), doc: "Where the key of the sealed vault is stored: in the file vault.key of the state directory, or in the keyring of the desktop session."},
		{key: "vault_inject", env: "SANDBOXMCP_VAULT_INJECT", def: "all", into: choice(&c.VaultInject, "all", "named", "none"), doc: "Which secrets of its namespace a run gets as environment variables: all, those that its env names as secret://KEY, or none. Runs of the sandbox_* tools get none."},
		{key: "allow_secret_artifacts", env: "SANDBOXMCP_ALLOW_SECRET_ARTIFACTS", def: "false", into: boolean(&c.AllowSecretArtifacts), doc: "True: returns files that contain a secret, unchanged. False: leaves them out. Both are listed in metadata."},
		{key: "redact_pii", env: "SANDBOXMCP_REDACT_PII", def: "false", into: boolean(&c.RedactPII), doc: "Masks e-mail addresses and phone, card and social security numbers in outputs and values. Files are not changed."},
	}
}

func packageRows(c *Config) []row {
	return []row{
		{key: "packages", env: "SANDBOXMCP_PACKAGES", def: "allow", into: choice(&c.Packages, "allow", "ask", "deny"), doc: "Whether packages may be installed into sandboxes: all (allow), those that a person approves (ask), or none (deny)."},
		{key: "packages_min_age_days", env: "SANDBOXMCP_PACKAGES_MIN_AGE_DAYS", def: "0", into: integer(&c.PackagesMinAgeDays, 0, 3650), doc: "How many days a release must have been public before it is installed."},
		{key: "packages_allow", env: "SANDBOXMCP_PACKAGES_ALLOW", into: list(&c.PackagesAllow, wordOK, "names of packages"), doc: "Packages that need no approval; * matches any part of a name, and python: or node: in front limits the language. Names of npm have to be in the same case. If it is not empty and packages is allow, no others are installed."},
		{key: "packages_deny", env: "SANDBOXMCP_PACKAGES_DENY", into: list(&c.PackagesDeny, wordOK, "names of packages"), doc: "Packages that are never installed, in the form of packages_allow, in any case of letters."},
	}
}

func checkRows(c *Config) []row {
	return []row{
		{key: "reject_dangerous", env: "SANDBOXMCP_REJECT_DANGEROUS", def: "false", into: boolean(&c.RejectDangerous), doc: "True: validate_code rejects code with a dangerous pattern, and a run of such code is refused. False: validate_code warns. It is a hint, not a wall: code can hide what it does."},
		{key: "validation_disabled", env: "SANDBOXMCP_VALIDATION_DISABLED", into: list(&c.ValidationDisabled, anyText, "names of rules"), doc: "Dangerous patterns that are not looked for. Each is named like the rule in an issue of validate_code, such as os.system or ctypes."},
	}
}

func dockerRows(c *Config) []row {
	return []row{
		{key: "image", env: "SANDBOXMCP_IMAGE", into: text(&c.Image, wordOK, "an image name"), doc: "Image of every container, with the interpreters of all languages. It is not downloaded. Not set: sandbox_image, or that of `sandboxmcp image build`, which is sandboxmcp/sandbox:latest, llm-sandbox:latest or sandboxmcp/sandbox:minimal. If the engine has none of these: python:3.11-slim, node:20-slim and ubuntu:22.04, each for its language."},
		{key: "docker_host", env: "SANDBOXMCP_DOCKER_HOST", into: text(&c.DockerHost, wordOK, "the address of an engine"), doc: "Address of a Docker engine, such as unix:///run/docker.sock, tcp://127.0.0.1:2375 for one in a virtual machine, or npipe:////./pipe/docker_engine on Windows. Not set: DOCKER_HOST, or unix:///var/run/docker.sock."},
		{key: "docker_runtime", env: "SANDBOXMCP_DOCKER_RUNTIME", into: text(&c.DockerRuntime, wordOK, "a runtime of the engine"), doc: "Runtime of containers, by its name in the engine, such as runsc (gVisor) or kata-runtime. Not set: runc."},
	}
}

func kubeRows(k *KubeSettings) []row {
	return []row{
		{key: "kube_config", env: "SANDBOXMCP_KUBE_CONFIG", into: text(&k.Config, anyText, "a file"), doc: "Path of the kubeconfig of the cluster. Not set: the service account of the server's own pod, or else KUBECONFIG and ~/.kube/config."},
		{key: "kube_context", env: "SANDBOXMCP_KUBE_CONTEXT", into: text(&k.Context, wordOK, "a context"), doc: "Context of the kubeconfig. Not set: its current one."},
		{key: "kube_namespace", env: "SANDBOXMCP_KUBE_NAMESPACE", into: text(&k.Namespace, wordOK, "a namespace"), doc: "Namespace of the pods of sandboxes. Not set: that of the context, or of the server's own pod."},
		{key: "kube_image", env: "SANDBOXMCP_KUBE_IMAGE", into: text(&k.Image, wordOK, "an image name"), doc: "Image of pods that are made one by one. It has the interpreters, and the program sandboxmcp-agent in /usr/local/bin."},
		{key: "kube_pool", env: "SANDBOXMCP_KUBE_POOL", into: text(&k.Pool, wordOK, "the name of a SandboxWarmPool"), doc: "SandboxWarmPool of agent-sandbox from which pods are claimed. A run that asks for less than these pods have gets a pod of kube_image. Not set: pods are made one by one."},
		{key: "kube_spare_pods", env: "SANDBOXMCP_KUBE_SPARE_PODS", def: "1", into: integer(&k.SparePods, 0, 64), doc: "How many pods of kube_pool the server claims before a sandbox needs them, once it has opened one. Such a sandbox does not wait for agent-sandbox. 0: none."},
		{key: "kube_spare_pods_most", env: "SANDBOXMCP_KUBE_SPARE_PODS_MOST", def: "8", into: integer(&k.MostSpares, 0, 64), doc: "The most pods that the server claims ahead. After several sandboxes were opened within two seconds, it claims as many ahead for a minute. If this is not above kube_spare_pods, it always claims kube_spare_pods."},
		{key: "kube_key_file", env: "SANDBOXMCP_KUBE_KEY_FILE", into: text(&k.KeyFile, anyText, "a file"), doc: "Ed25519 private key by which the pods of kube_pool know the server, as `openssl genpkey -algorithm ed25519` makes it. Not set: a new key, which only pods know that this server makes."},
		{key: "kube_runtime_class", env: "SANDBOXMCP_KUBE_RUNTIME_CLASS", into: text(&k.RuntimeClass, wordOK, "a RuntimeClass"), doc: "RuntimeClass of pods that are made one by one, such as gvisor or kata. Not set: the cluster's default."},
		{key: "kube_host_users", env: "SANDBOXMCP_KUBE_HOST_USERS", def: "true", into: boolean(&k.HostUsers), doc: "False: pods have a user namespace (hostUsers: false). Their first process is root in it and has eight capabilities, which the level restricted of pod security refuses, and programs are another user. True: pods fit the level restricted."},
		{key: "kube_connect", env: "SANDBOXMCP_KUBE_CONNECT", def: "auto", into: choice(&k.Connect, "auto", "pod", "api"), doc: "How the server reaches a pod: at its address (pod), or through the API server (api). auto: pod if the server is a pod of the cluster, otherwise api."},
		{key: "kube_canary", env: "SANDBOXMCP_KUBE_CANARY", into: list(&k.Canary, anyText, "addresses with ports"), doc: "IPv4 addresses with ports that no pod may reach, such as 10.0.0.1:443, besides that of the API server. A pod that reaches one of them is refused."},
	}
}

func containerRows(c *Config) []row {
	return []row{
		{key: "memory_limit", def: "256m", into: size(&c.MemoryLimit), doc: "The most memory that a container gets; a run that asks for more gets this much. Not set: there is no such ceiling, and max_ram_mb applies."},
		{key: "cpu_period", def: "100000", into: integer(&c.CPUPeriod, 1000, 1_000_000), doc: "The time in microseconds to which cpu_quota refers. The kernel measures in periods of 100 ms anyway."},
		{key: "cpu_quota", def: "50000", into: integer(&c.CPUQuota, 1000, 1<<30), doc: "The most CPU cores that a container gets are cpu_quota / cpu_period. Neither is set: there is no such ceiling, and max_cpu_cores applies."},
		{key: "network_mode", def: "none", into: text(&c.NetworkMode, networkOK, "none, or a network such as bridge; no sandbox shares the network of host or of a container"), doc: "No container has a network of the engine. none: enable_network says whether allowed_domains are open. Any other network, such as bridge: they are open to containers if default_backend is docker, through the egress proxy. host and container:NAME are refused."},
		{key: "hardened", def: "true", into: onlyTrue(&c.Hardened), doc: "Read-only root, no capabilities, no new privileges. Every sandbox has these walls, so false is refused."},
	}
}

func fileRows(c *Config) []row {
	return []row{
		{key: "api_host", env: "SANDBOXMCP_API_HOST", def: "127.0.0.1", into: text(&c.APIHost, wordOK, "a host name or an address"), doc: "Address of the HTTP listener, which download links contain. With 0.0.0.0 or ::, links contain the machine's first address that is not loopback; to choose another, set that address. Without API keys only a loopback address is allowed."},
		{key: "api_port", env: "SANDBOXMCP_API_PORT", def: "8080", into: integer(&c.APIPort, 0, 65535), doc: "Port of the HTTP listener. With stdio, the artifact server takes any free port unless one is set."},
		{key: "artifact_server", env: "SANDBOXMCP_ARTIFACT_SERVER", def: "true", into: boolean(&c.ArtifactServer), doc: "True: with stdio, answers have links to files, on a port of 127.0.0.1 that is opened for the first link, or on the port that is set. A link opens one file; programs of this machine that know the id of a session which the server has named can read all of its files. False: there are no links. mcp-code-sandbox always has them."},
		{key: "sandbox_http_host", env: "SANDBOX_HTTP_HOST", def: "127.0.0.1", into: text(&c.Tools.HTTPHost, wordOK, "a host name or an address"), doc: "Address of the HTTP listener if api_host is not set."},
		{key: "sandbox_http_port", env: "SANDBOX_HTTP_PORT", def: "8080", into: integer(&c.Tools.HTTPPort, 0, 65535), doc: "Port of the HTTP listener if api_port is not set."},
	}
}

func answerRows(c *Config) []row {
	return []row{
		{key: "mcp_answers", env: "SANDBOXMCP_MCP_ANSWERS", def: "small", into: choice(&c.MCPAnswers, "small", "full"), doc: "What an answer over MCP holds. small: what a model needs; the rest is in get_artifacts and in the resource run://<request_id>/result. full: every field, for programs that parse; streams above 39,000 characters together and the content of larger files are cut to what clients can read, and a uri names the whole content. mcp-code-sandbox always answers in full."},
		{key: "mcp_tools", env: "SANDBOXMCP_MCP_TOOLS", into: list(&c.MCPTools, wordOK, "names of tools, or of the groups execution, sessions, monitoring, security, web, host and files"), doc: "The tools that are offered over MCP. Not set: all."},
		{key: "mcp_read_only", env: "SANDBOXMCP_MCP_READ_ONLY", def: "false", into: boolean(&c.MCPReadOnly), doc: "True: only tools that change nothing are offered over MCP, so no code can be run over MCP. REST, on the same port with --transport http, keeps its routes."},
		{key: "mcp_output_chars", env: "SANDBOXMCP_MCP_OUTPUT_CHARS", def: "16000", into: integer(&c.MCPOutputChars, 1000, 32_000), doc: "The largest number of characters that stdout and stderr have together in a small answer. The client can read the rest as a resource."},
	}
}

func httpRows(c *Config) []row {
	return []row{
		{key: "api_keys", env: "SANDBOXMCP_API_KEYS", secret: true, into: keys(&c.APIKeys), doc: "API keys, each with the namespaces that its callers may use. The first is the default. A key without namespaces may use the server's own. KEY=* is the key of an operator: it may use every namespace, and answer the questions of programs. With keys, every request over HTTP needs one, except health checks and signed links."},
		{key: "cors_origins", env: "SANDBOXMCP_CORS_ORIGINS", into: list(&c.CORSOrigins, wordOK, "origins such as https://host"), doc: "Origins of web pages that may call the HTTP API."},
		{key: "public_url", env: "SANDBOXMCP_PUBLIC_URL", into: site(&c.PublicURL), doc: "URL under which clients reach the server through a reverse proxy, such as https://sandbox.example. Requests for its host are accepted, and links begin with it."},
		{key: "oauth_issuer", env: "SANDBOXMCP_OAUTH_ISSUER", into: site(&c.OAuthIssuer), doc: "OAuth issuer whose access tokens are accepted beside API keys: JSON Web Tokens for oauth_audience. The claim sandboxmcp_namespaces lists the namespaces of the caller; without it the caller may use the server's own."},
		{key: "oauth_audience", env: "SANDBOXMCP_OAUTH_AUDIENCE", into: text(&c.OAuthAudience, wordOK, "a word or a URL"), doc: "The claim aud of tokens. Not set: the URL of /mcp under public_url."},
		{key: "oauth_keys_url", env: "SANDBOXMCP_OAUTH_KEYS_URL", into: site(&c.OAuthKeysURL), doc: "URL of the issuer's key set (JWKS). Not set: as the issuer's metadata says."},
		{key: "oauth_scope", env: "SANDBOXMCP_OAUTH_SCOPE", into: text(&c.OAuthScope, wordOK, "a word"), doc: "A scope that tokens must have. Not set: none."},
		{key: "api_rate", env: "SANDBOXMCP_API_RATE", def: "5000", into: integer(&c.APIRate, 0, 1_000_000), doc: "HTTP requests per second that each caller may send. A burst may have twice as many. Further ones are refused with queue_full and Retry-After. 0: no limit."},
	}
}

func toolRows(t *Tools) []row {
	return []row{
		{key: "sandbox_memory_limit", env: "SANDBOX_MEMORY_LIMIT", def: "512m", into: size(&t.MemoryLimit), doc: "Memory of a run of the five sandbox_* tools. Not set: max_ram_mb."},
		{key: "sandbox_cpu_limit", env: "SANDBOX_CPU_LIMIT", def: "1.0", into: cores(&t.CPULimit, 1024), doc: "CPU cores of a run of these tools, at least 0.01. Not set: max_cpu_cores."},
		{key: "sandbox_exec_timeout_s", env: "SANDBOX_EXEC_TIMEOUT_S", def: "60", into: number(&t.ExecTimeoutSeconds, 0, 3600), doc: "Wall-clock seconds of a run of these tools. Not set: timeout_seconds."},
		{key: "sandbox_session_ttl_m", env: "SANDBOX_SESSION_TTL_M", def: "30", into: number(&t.SessionTTLMinutes, 0, 525600), doc: "A session ends after this many minutes without use."},
		{key: "sandbox_max_sessions", env: "SANDBOX_MAX_SESSIONS", def: "10", into: integer(&t.MaxSessions, 1, 10000), doc: "How many sessions may be open. If a namespace has a session, one place is kept from it for each other known namespace without a session. At most half of all places are kept. Known are the namespaces of api_keys and the last 64 others that wanted a session. All namespaces of one key count together, and no place is kept from a key for namespaces that no other key has. With oauth_issuer, one more place is kept for a namespace that was not seen before."},
		{key: "sandbox_cleanup_interval_m", env: "SANDBOX_CLEANUP_INTERVAL_M", def: "5", into: number(&t.CleanupMinutes, 0, 1440), doc: "Accepted for compatibility, without effect: a session ends as soon as its time is up."},
		{key: "sandbox_max_upload_bytes", env: "SANDBOX_MAX_UPLOAD_BYTES", def: "52428800", into: integer(&t.MaxUploadBytes, 1, int64(1<<34)), doc: "Largest uploaded file in bytes."},
		{key: "sandbox_max_artifact_read_bytes", env: "SANDBOX_MAX_ARTIFACT_READ_BYTES", def: "10485760", into: integer(&t.MaxArtifactReadBytes, 1, int64(1<<30)), doc: "Largest artifact that one answer returns, in bytes."},
		{key: "sandbox_max_output_bytes", env: "SANDBOX_MAX_OUTPUT_BYTES", def: "102400", into: integer(&t.MaxOutputBytes, 1, int64(64<<20)), doc: "Bytes of each stream that an answer of these tools returns."},
		{key: "sandbox_max_code_bytes", env: "SANDBOX_MAX_CODE_BYTES", def: "102400", into: integer(&t.MaxCodeBytes, 1, int64(64<<20)), doc: "Largest code of sandbox_run_python in bytes."},
		{key: "sandbox_stateful", env: "SANDBOX_STATEFUL", def: "false", into: boolean(&t.Stateful), doc: "True: sessions of these tools keep variables from run to run. False: they keep files only."},
		{key: "sandbox_network", env: "SANDBOX_NETWORK", def: "none", into: choice(&t.Network, "none", "approved"), doc: "approved: sessions of these tools can reach open domains. none: they have no network."},
		{key: "sandbox_image", env: "SANDBOX_IMAGE", def: "llm-sandbox:latest", into: text(&t.Image, wordOK, "an image name"), doc: "Image of containers, if image is not set. If neither is set, the default of image is used."},
	}
}

func logRows(t *Tools) []row {
	return []row{
		{key: "sandbox_log_level", env: "SANDBOX_LOG_LEVEL", def: "INFO", into: choice(&t.LogLevel, "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"), doc: "The lowest level that is logged."},
		{key: "sandbox_log_file", env: "SANDBOX_LOG_FILE", def: "logs/sandbox.log", into: text(&t.LogFile, anyText, "a file"), doc: "File of the log. Not set: standard error. The default applies to mcp-code-sandbox only."},
		{key: "sandbox_log_format", env: "SANDBOX_LOG_FORMAT", def: "console", into: choice(&t.LogFormat, "console", "json"), doc: "Format of the log."},
	}
}

func testRows(c *Config) []row {
	return []row{
		{key: "test", env: "SANDBOXMCP_TEST", def: "false", into: boolean(&c.Test), doc: "Allows the two settings below."},
		{key: "egress_test_resolve", env: "SANDBOXMCP_EGRESS_TEST_RESOLVE", test: true, into: items(&c.EgressTestResolve, "mappings of the form name[:port]=ip:port", parseMapping), doc: "Redirects allowed connections to an address instead of resolving the name."},
		{key: "egress_test_dns", env: "SANDBOXMCP_EGRESS_TEST_DNS", test: true, into: resolver(&c.EgressTestDNS), doc: "The DNS server for all other names."},
	}
}
