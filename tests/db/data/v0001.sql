BEGIN TRANSACTION;
CREATE TABLE analyses (
	id INTEGER NOT NULL, 
	sweep_id INTEGER NOT NULL, 
	version_id INTEGER NOT NULL, 
	data_hash TEXT NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	created DOUBLE NOT NULL, 
	confirmed DOUBLE NOT NULL, 
	CONSTRAINT pk_analyses PRIMARY KEY (id), 
	CONSTRAINT fk_analyses_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE, 
	CONSTRAINT fk_analyses_version_id FOREIGN KEY(version_id) REFERENCES sweep_versions (id), 
	CONSTRAINT uq_analyses_sweep_id_digest UNIQUE (sweep_id, digest)
);
INSERT INTO "analyses" VALUES(1,1,1,'h','bb77b16f95c7742001a15bdd606082fb6aac669a4ed91b914956dd8c3fb3d4d5',1.79610285347464561462e+09,1.79610285347464561462e+09);
CREATE TABLE artifacts (
	run_key INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	file TEXT NOT NULL, 
	n BIGINT, 
	bytes DOUBLE, 
	sha256 VARCHAR(64), 
	time DOUBLE, 
	attempt INTEGER NOT NULL, 
	CONSTRAINT pk_artifacts PRIMARY KEY (run_key, name), 
	CONSTRAINT fk_artifacts_run_key FOREIGN KEY(run_key) REFERENCES runs ("key") ON DELETE CASCADE
);
INSERT INTO "artifacts" VALUES(1,'x','artifacts/x.safetensors',3,24.0,'ab',6.0,2);
CREATE TABLE attempts (
	run_key INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	reason TEXT, 
	started DOUBLE, 
	ended DOUBLE, 
	seconds DOUBLE, 
	peak_bytes DOUBLE, 
	from_step BIGINT, 
	last_step BIGINT, 
	last_seen DOUBLE, 
	checkpoint_step BIGINT, 
	checkpoint_bytes DOUBLE, 
	host TEXT, 
	pid BIGINT, 
	device TEXT, 
	threads INTEGER, 
	seed BIGINT, 
	code_commit TEXT, 
	code_dirty BOOLEAN, 
	packages TEXT, 
	error_type TEXT, 
	error_message TEXT, 
	traceback TEXT, 
	CONSTRAINT pk_attempts PRIMARY KEY (run_key, number), 
	CONSTRAINT fk_attempts_run_key FOREIGN KEY(run_key) REFERENCES runs ("key") ON DELETE CASCADE
);
INSERT INTO "attempts" VALUES(1,1,'interrupted','SIGTERM',1.0,3.0,1.0,5.0,NULL,1,3.0,1,10.0,'h',1,'cpu',2,0,'abc',0,'{"torch": "2.13.0"}',NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(1,2,'done',NULL,4.0,7.0,3.0,6.0,1,2,7.0,NULL,NULL,'h',1,'cpu',2,0,'abc',0,'{"torch": "2.13.0"}',NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(2,1,'diverged','loss is nan at step 2',1.0,3.0,1.0,5.0,NULL,2,3.0,NULL,NULL,'h',1,'cpu',2,0,'abc',0,'{"torch": "2.13.0"}',NULL,NULL,NULL);
CREATE TABLE fits (
	analysis_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	name TEXT, 
	law TEXT, 
	metric TEXT, 
	over TEXT, 
	groups TEXT, 
	status TEXT, 
	n BIGINT, 
	content TEXT NOT NULL, 
	CONSTRAINT pk_fits PRIMARY KEY (analysis_id, position), 
	CONSTRAINT fk_fits_analysis_id FOREIGN KEY(analysis_id) REFERENCES analyses (id) ON DELETE CASCADE
);
INSERT INTO "fits" VALUES(1,0,'f','power','loss','width',NULL,'weak',2,'{"name":"f","law":"power","of":"loss","over":"width","n":2,"status":"weak"}');
CREATE TABLE infeasible (
	sweep_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	coords TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	CONSTRAINT pk_infeasible PRIMARY KEY (sweep_id, position), 
	CONSTRAINT fk_infeasible_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
);
INSERT INTO "infeasible" VALUES(1,0,'{"width":64}','too wide');
CREATE TABLE metric_names (
	"key" INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	CONSTRAINT pk_metric_names PRIMARY KEY ("key"), 
	CONSTRAINT uq_metric_names_name UNIQUE (name)
);
INSERT INTO "metric_names" VALUES(1,'loss');
CREATE TABLE metrics (
	run_key INTEGER NOT NULL, 
	name_key INTEGER NOT NULL, 
	step BIGINT NOT NULL, 
	time DOUBLE, 
	value DOUBLE, 
	kind SMALLINT NOT NULL, 
	attempt INTEGER NOT NULL, 
	CONSTRAINT pk_metrics PRIMARY KEY (run_key, name_key, step)
)
 WITHOUT ROWID

;
INSERT INTO "metrics" VALUES(1,1,1,2.0,2.5,0,1);
INSERT INTO "metrics" VALUES(1,1,2,5.0,1.5,0,2);
INSERT INTO "metrics" VALUES(2,1,1,2.0,3.0,0,1);
INSERT INTO "metrics" VALUES(2,1,2,3.0,NULL,1,1);
CREATE TABLE positions (
	run_key INTEGER NOT NULL, 
	byte_offset BIGINT NOT NULL, 
	tail VARCHAR(16) NOT NULL, 
	rereads INTEGER NOT NULL, 
	lines BIGINT NOT NULL, 
	bad_lines BIGINT NOT NULL, 
	alien_lines BIGINT NOT NULL, 
	open_attempt INTEGER NOT NULL, 
	last_attempt INTEGER NOT NULL, 
	CONSTRAINT pk_positions PRIMARY KEY (run_key), 
	CONSTRAINT fk_positions_run_key FOREIGN KEY(run_key) REFERENCES runs ("key") ON DELETE CASCADE
);
INSERT INTO "positions" VALUES(1,945,'a474c14e686ac244',0,9,0,0,2,2);
INSERT INTO "positions" VALUES(2,437,'d598603f7204630b',0,4,0,0,1,1);
CREATE TABLE predictions (
	analysis_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	fit TEXT, 
	law TEXT, 
	metric TEXT, 
	place TEXT, 
	groups TEXT, 
	value DOUBLE, 
	lo DOUBLE, 
	hi DOUBLE, 
	level DOUBLE, 
	observed DOUBLE, 
	held_out BOOLEAN, 
	content TEXT NOT NULL, 
	CONSTRAINT pk_predictions PRIMARY KEY (analysis_id, position), 
	CONSTRAINT fk_predictions_analysis_id FOREIGN KEY(analysis_id) REFERENCES analyses (id) ON DELETE CASCADE
);
INSERT INTO "predictions" VALUES(1,0,'f','power','loss','{"width":64}',NULL,1.25,1.0,1.5,0.95,NULL,0,'{"fit":"f","law":"power","of":"loss","at":{"width":64},"value":1.25,"lo":1.0,"hi":1.5,"level":0.95,"observed":null,"held_out":false}');
CREATE TABLE runs (
	"key" INTEGER NOT NULL, 
	id VARCHAR(64) NOT NULL, 
	identity_version INTEGER NOT NULL, 
	task TEXT NOT NULL, 
	config TEXT NOT NULL, 
	n_params DOUBLE, 
	flops DOUBLE, 
	tokens DOUBLE, 
	bytes DOUBLE, 
	registered DOUBLE NOT NULL, 
	CONSTRAINT pk_runs PRIMARY KEY ("key"), 
	CONSTRAINT uq_runs_id UNIQUE (id)
);
INSERT INTO "runs" VALUES(1,'aaaa',1,'models.lm:train','{"model":{"width":16}}',100.0,6.0e+21,6.0e+21,NULL,1.79610285326665782921e+09);
INSERT INTO "runs" VALUES(2,'bbbb',1,'models.lm:train','{"model":{"width":32}}',200.0,NULL,NULL,NULL,1.79610285326665782921e+09);
CREATE TABLE selections (
	sweep_id INTEGER NOT NULL, 
	run_key INTEGER NOT NULL, 
	cell VARCHAR(32) NOT NULL, 
	version_id INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	coords TEXT NOT NULL, 
	derived TEXT NOT NULL, 
	is_current BOOLEAN NOT NULL, 
	CONSTRAINT pk_selections PRIMARY KEY (sweep_id, run_key, cell), 
	CONSTRAINT fk_selections_run_key FOREIGN KEY(run_key) REFERENCES runs ("key") ON DELETE CASCADE, 
	CONSTRAINT fk_selections_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE, 
	CONSTRAINT fk_selections_version_id FOREIGN KEY(version_id) REFERENCES sweep_versions (id)
);
INSERT INTO "selections" VALUES(1,1,'cc411e9169c0634acc2f1df96fec1195',1,0,'{"width":16}','{"tokens":6e+21}',1);
INSERT INTO "selections" VALUES(1,2,'09ff9d07c221c3276fac474701fb5f64',1,1,'{"width":32}','{"tokens":6e+21}',1);
CREATE TABLE summaries (
	run_key INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	kind VARCHAR(8) NOT NULL, 
	number DOUBLE, 
	text TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	CONSTRAINT pk_summaries PRIMARY KEY (run_key, name), 
	CONSTRAINT fk_summaries_run_key FOREIGN KEY(run_key) REFERENCES runs ("key") ON DELETE CASCADE
);
INSERT INTO "summaries" VALUES(1,'corpus','str',NULL,'stdlib',2);
CREATE TABLE sweep_versions (
	id INTEGER NOT NULL, 
	sweep_id INTEGER NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	spec_text TEXT NOT NULL, 
	question TEXT, 
	task TEXT NOT NULL, 
	created DOUBLE NOT NULL, 
	launched DOUBLE NOT NULL, 
	CONSTRAINT pk_sweep_versions PRIMARY KEY (id), 
	CONSTRAINT fk_sweep_versions_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE, 
	CONSTRAINT uq_sweep_versions_sweep_id_digest UNIQUE (sweep_id, digest)
);
INSERT INTO "sweep_versions" VALUES(1,1,'fa680ccc71ab626aa99f0c0f5073e52925d3461a4e7d845b70591b544e66fa61','name: old
','why?','models.lm:train',1.79610285326665782921e+09,1.79610285326665782921e+09);
CREATE TABLE sweeplaw_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT sweeplaw_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "sweeplaw_version" VALUES('0001');
CREATE TABLE sweeps (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	version_id BIGINT, 
	created DOUBLE NOT NULL, 
	CONSTRAINT pk_sweeps PRIMARY KEY (id), 
	CONSTRAINT uq_sweeps_name UNIQUE (name)
);
INSERT INTO "sweeps" VALUES(1,'old',1,1.79610285326665782921e+09);
CREATE INDEX ix_runs_task ON runs (task);
COMMIT;
