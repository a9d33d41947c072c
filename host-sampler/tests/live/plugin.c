/* A library without symbols except for its entry point. */
volatile int plugin_sink;
static __attribute__((noipa)) void hidden(void (*wait)(void)) { wait(); plugin_sink++; }
__attribute__((visibility("default"))) void plugin_entry(void (*wait)(void)) { hidden(wait); plugin_sink++; }
