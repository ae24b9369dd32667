"""Import the modules of all workers into the process that forks them (`forks`).

AWS's runtime client is not imported here, because it then reads the address of its API.
"""

import gc
import importlib
import pkgutil

import tidings.aws
import tidings.core
import tidings.http
from tests.twin.environment import REGION
from tidings.aws import clients, stage

for _package in (tidings.aws, tidings.core, tidings.http):
    for _module in pkgutil.walk_packages(_package.__path__, f"{_package.__name__}."):
        importlib.import_module(_module.name)
for _service in ("dynamodb", "lambda", "s3"):
    clients.session().create_client(_service, region_name=REGION)
stage.forget()
gc.freeze()
