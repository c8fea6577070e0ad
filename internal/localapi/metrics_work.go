package localapi

import "github.com/aks-flex-node/agent/internal/agent"

// workFamilies say how the agent itself fares.
func workFamilies() []family {
	return []family{
		count("looks_total", "Rounds of looks at everything.", func(c *agent.Counters) uint64 { return c.Looks }),
		count("events_total", "Events that woke the agent: of systemd, of the Node's watch and of files.", func(c *agent.Counters) uint64 { return c.Events }),
		count("decisions_total", "Decisions that differed from the one before.", func(c *agent.Counters) uint64 { return c.Decisions }),
		count("snapshot_writes_total", "Snapshots written.", func(c *agent.Counters) uint64 { return c.SnapshotWrites }),
		count("snapshot_write_errors_total", "Snapshots that could not be written.", func(c *agent.Counters) uint64 { return c.SnapshotWriteErrors }),
		{"snapshot_last_updated_timestamp_seconds", "The time in the last snapshot; left out before the first.", nil, func(v *agent.View, e emit) {
			if v.Snapshot != nil {
				at(e, v.Snapshot.LastUpdated)
			}
		}},
		count("node_condition_writes_total", "Times that the condition of the Node was told to the cluster.", func(c *agent.Counters) uint64 { return c.NodeConditionWrites }),
		count("cluster_errors_total", "Times that the cluster could not be told something.", func(c *agent.Counters) uint64 { return c.ClusterErrors }),
		{"journal_writable", "1 when the journal can be written. Without it the agent only observes.", nil, func(v *agent.View, e emit) {
			e(truth(v.JournalProblem == ""))
		}},
		{"config_refused", "1 when the configuration was to be read anew and could not be used, so that an earlier one is in use.", nil, func(v *agent.View, e emit) {
			e(truth(v.ConfigProblem != ""))
		}},
	}
}

func count(name, help string, of func(*agent.Counters) uint64) family {
	return family{name, help + " Counted since the agent started.", nil, func(v *agent.View, e emit) { e(float64(of(&v.Counters))) }}
}

// probeFamilies say how the probes fare.
func probeFamilies() []family {
	return []family{
		{"probe_looks_total", "Looks of a probe that have ended.", []string{"probe"}, func(v *agent.View, e emit) {
			for _, p := range v.Probes {
				e(float64(p.Looks), p.Name)
			}
		}},
		{"probe_failures_total", "Looks of a probe that could not tell.", []string{"probe"}, func(v *agent.View, e emit) {
			for _, p := range v.Probes {
				e(float64(p.Failures), p.Name)
			}
		}},
		{"probe_duration_seconds", "How long the last look of a probe took.", []string{"probe"}, func(v *agent.View, e emit) {
			for _, p := range v.Probes {
				e(p.Last.Seconds(), p.Name)
			}
		}},
		{"probe_hangs", "1 while a look of a probe is under way past its deadline.", []string{"probe"}, func(v *agent.View, e emit) {
			for _, p := range v.Probes {
				e(truth(p.Hangs), p.Name)
			}
		}},
	}
}
